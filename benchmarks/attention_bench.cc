// Times paged attention and the KV write on the CPU backend, as decode steps and as prefill chunks,
// with block tables in random order and a cache larger than the processor's. Prints one JSON line
// per figure, each set against what the machine reached in the same process: sequential reads,
// reads of KV-sized runs in random order, multiply-add peak. Outputs are compared with the
// reference backend before anything is timed.
//
//   attention_bench --threads 2 --kv f16
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/machine_ceilings.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/linear_input.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/reference_input.h"
#include "kernels/rope.h"

namespace quire::benchmarks {
namespace {

using kernels::AttentionPlan;
using kernels::AttentionShape;
using kernels::Backend;
using kernels::BatchView;
using kernels::LinearInput;
using kernels::MatrixView;

struct Options {
  std::string isa;
  int threads = 0;
  int heads = 9;
  int kv_heads = 3;
  int head_dim = 64;
  int block_size = 16;
  std::string kv = "f16";
  int samples = 15;

  int width() const { return (heads + 2 * kv_heads) * head_dim; }
  KvDtype dtype() const {
    if (kv == "f32") return KvDtype::kF32;
    return kv == "bf16" ? KvDtype::kBf16 : KvDtype::kF16;
  }
};

struct Ceilings {
  double read_gbps;
  double chunk_gbps;
  double fma_gflops;
};

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::int64_t InvoluntarySwitches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

// Reads of `chunk` bytes in random order by all threads, GB/s: the best of a few passes.
double MeasureChunkBandwidth(int threads, std::size_t chunk) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  auto buffer = kernels::cpu::AlignedBuffer::Allocate(kBytes).value();
  std::fill_n(buffer.data(), kBytes, std::byte{1});
  std::vector<std::uint32_t> order(kBytes / chunk);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::minstd_rand(3));
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);
  const auto read = [&](int thread) {
    std::uint64_t lanes[8] = {};
    const std::size_t share = order.size() / static_cast<std::size_t>(threads);
    for (std::size_t i = 0; i < share; ++i) {
      const std::size_t at = order[static_cast<std::size_t>(thread) * share + i] * chunk;
      const auto* words = reinterpret_cast<const std::uint64_t*>(buffer.data() + at);
      for (std::size_t w = 0; w + 8 <= chunk / 8; w += 8) {
        for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] ^= words[w + lane];
      }
    }
    for (const std::uint64_t lane : lanes) sums[static_cast<std::size_t>(thread) * 8] ^= lane;
  };
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const double start = Seconds();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(read, t);
    read(0);
    for (std::thread& other : others) other.join();
    best = std::max(best, static_cast<double>(kBytes) / (Seconds() - start) / 1e9);
  }
  return best;
}

// The tokens [begin, end) of some sequences of equal length.
class Batch {
 public:
  // Sequence s owns blocks[s * n] to blocks[(s + 1) * n - 1], n = blocks of `length` tokens.
  Batch(const Options& options, const std::vector<std::int32_t>& blocks, int first, int count,
        int length, int begin, int end) {
    const int per_sequence = (length + options.block_size - 1) / options.block_size;
    for (int s = first; s < first + count; ++s) {
      for (int p = begin; p < end; ++p) positions_.push_back(p);
      q_indptr_.push_back(static_cast<std::int32_t>(positions_.size()));
      kv_lens_.push_back(end);
      first_position_.push_back(0);
      const auto own = blocks.begin() + std::ptrdiff_t{s} * per_sequence;
      block_ids_.insert(block_ids_.end(), own, own + per_sequence);
      block_indptr_.push_back(static_cast<std::int32_t>(block_ids_.size()));
    }
    tokens_.resize(positions_.size());
  }
  BatchView view() const {
    BatchView batch;
    batch.token_ids = tokens_;
    batch.positions = positions_;
    batch.q_indptr = q_indptr_;
    batch.kv_lens = kv_lens_;
    batch.block_indptr = block_indptr_;
    batch.block_ids = block_ids_;
    batch.first_position = first_position_;
    return batch;
  }
  int rows() const { return static_cast<int>(positions_.size()); }

 private:
  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> q_indptr_ = {0};
  std::vector<std::int32_t> kv_lens_;
  std::vector<std::int32_t> block_indptr_ = {0};
  std::vector<std::int32_t> block_ids_;
  std::vector<std::int32_t> first_position_;
};

// `count` sequences that compute the tokens [before, before + now), as one step.
struct Step {
  std::string name;
  int count;
  int before;
  int now;
};

// One step on one backend: cache filled with random K and V, ready to run any number of times.
class Rig {
 public:
  Rig(Backend& backend, const Options& options, const Step& step, int layers)
      : backend_(backend),
        options_(options),
        step_(step),
        shape_{.num_heads = options.heads,
               .num_kv_heads = options.kv_heads,
               .head_dim = options.head_dim,
               .scale = 1.0F / std::sqrt(static_cast<float>(options.head_dim)),
               .sliding_window = 0},
        geometry_{.num_layers = layers,
                  .num_kv_heads = options.kv_heads,
                  .k_dim = options.head_dim,
                  .v_dim = options.head_dim,
                  .block_size = options.block_size,
                  .k_dtype = options.dtype(),
                  .v_dtype = options.dtype()},
        rope_(kernels::MakeRopeTable(kernels::RopeStyle::kInterleaved,
                                     kernels::RopeInverseFrequencies(1e4, options.head_dim),
                                     length())),
        blocks_(static_cast<std::size_t>(geometry_.blocks_for_tokens(length()) * step.count)),
        batch_(Shuffled(blocks_), options, step, length()),
        random_rows_(static_cast<std::size_t>(std::max(length(), batch_.rows())) *
                     options.width()) {
    cache_ = backend.NewKvCache(geometry_, static_cast<std::int64_t>(blocks_.size())).value();
    std::minstd_rand random(7);
    for (float& x : random_rows_) x = static_cast<float>(random() % 2'001) / 1'000 - 1;
    for (int layer = 0; layer < layers; ++layer) {
      for (int s = 0; s < step.count; ++s) {
        Write(Batch(options, blocks_, s, 1, length(), 0, length()), layer);
      }
    }
    out_ = backend.NewLinearInput(batch_.rows(), options.heads * options.head_dim);
  }

  int length() const { return step_.before + step_.now; }
  int rows() const { return batch_.rows(); }
  int layers() const { return geometry_.num_layers; }
  // What one layer must read.
  std::int64_t kv_bytes() const {
    return geometry_.bytes_per_token() / geometry_.num_layers * length() * step_.count;
  }
  // Scores and weighted values, two per multiply-add, without what causality hides.
  double flops() const {
    const double row_keys = step_.count * step_.now * (step_.before + (step_.now + 1) / 2.0);
    return row_keys * options_.heads * options_.head_dim * 4;
  }

  void Write(int layer) { Write(batch_, layer); }
  const LinearInput& Attend(int layer) {
    PlanAttention(batch_.view(), backend_.PlanOptions(shape_), plan_);
    backend_.Attention(shape_, batch_.view(), plan_, layer, qkv(batch_), *cache_, *out_);
    return *out_;
  }

 private:
  struct Table : Batch {
    Table(const std::vector<std::int32_t>& blocks, const Options& options, const Step& step,
          int length)
        : Batch(options, blocks, 0, step.count, length, step.before, length) {}
  };
  static const std::vector<std::int32_t>& Shuffled(std::vector<std::int32_t>& blocks) {
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::minstd_rand(5));
    return blocks;
  }
  MatrixView qkv(const Batch& batch) {
    return {.data = random_rows_.data(),
            .rows = batch.rows(),
            .cols = options_.width(),
            .stride = options_.width()};
  }
  void Write(const Batch& batch, int layer) {
    backend_.RopeAndWriteKv(rope_, shape_, batch.view(), layer, qkv(batch), *cache_);
  }

  Backend& backend_;
  const Options& options_;
  Step step_;
  AttentionShape shape_;
  KvGeometry geometry_;
  kernels::RopeTable rope_;
  std::vector<std::int32_t> blocks_;
  Table batch_;
  std::vector<float> random_rows_;
  std::unique_ptr<kernels::KvCache> cache_;
  std::unique_ptr<LinearInput> out_;
  AttentionPlan plan_;
};

// Relative difference to the reference backend on a step that mixes history and new tokens.
double Error(Backend& backend, const Options& options) {
  const auto oracle = kernels::NewReferenceBackend();
  const Step step = {.name = "check", .count = 2, .before = 150, .now = 50};
  Rig expected(*oracle, options, step, 1);
  Rig actual(backend, options, step, 1);
  const auto& want = dynamic_cast<const kernels::reference::ReferenceInput&>(expected.Attend(0));
  const auto& got = dynamic_cast<const kernels::cpu::CpuLinearInput&>(actual.Attend(0));
  double difference = 0;
  double norm = 0;
  for (int r = 0; r < actual.rows(); ++r) {
    for (int c = 0; c < options.heads * options.head_dim; ++c) {
      difference += std::pow(double{got.row(r)[c]} - want.row(r)[c], 2);
      norm += std::pow(want.row(r)[c], 2);
    }
  }
  return std::sqrt(difference / norm);
}

// Median seconds of body(layer), over calls without an involuntary context switch (all calls if
// there are none such). Goes through all layers, `samples` times, so that K and V come from memory.
template <class Body>
double MedianSeconds(int samples, int layers, Body&& body) {
  std::vector<double> clean;
  std::vector<double> all;
  for (int i = 0; i < samples * layers; ++i) {
    const std::int64_t switches = InvoluntarySwitches();
    const double start = Seconds();
    body(i % layers);
    const double seconds = Seconds() - start;
    all.push_back(seconds);
    if (InvoluntarySwitches() == switches) clean.push_back(seconds);
  }
  std::vector<double>& used = clean.empty() ? all : clean;
  const auto middle = used.begin() + static_cast<std::ptrdiff_t>(used.size() / 2);
  std::nth_element(used.begin(), middle, used.end());
  return *middle;
}

void Run(Backend& backend, const Options& options, const Step& step, const Ceilings& ceilings) {
  const KvGeometry one = {.num_layers = 1,
                          .num_kv_heads = options.kv_heads,
                          .k_dim = options.head_dim,
                          .v_dim = options.head_dim,
                          .block_size = options.block_size,
                          .k_dtype = options.dtype(),
                          .v_dtype = options.dtype()};
  const std::int64_t bytes = one.bytes_per_token() * (step.before + step.now) * step.count;
  const int layers =
      static_cast<int>(std::clamp<std::int64_t>((std::int64_t{192} << 20) / bytes, 1, 60));
  Rig rig(backend, options, step, layers);
  const double write = MedianSeconds(options.samples, layers, [&](int layer) { rig.Write(layer); });
  const double attend =
      MedianSeconds(options.samples, layers, [&](int layer) { rig.Attend(layer); });
  const double gbps = static_cast<double>(rig.kv_bytes()) / attend / 1e9;
  const double gflops = rig.flops() / attend / 1e9;
  const nlohmann::json row = {{"bench", "attention"},
                              {"step", step.name},
                              {"sequences", step.count},
                              {"context", step.before},
                              {"new_tokens", step.now},
                              {"kv", options.kv},
                              {"isa", backend.info().isa},
                              {"threads", options.threads},
                              {"attention_us", attend * 1e6},
                              {"kv_write_us", write * 1e6},
                              {"kv_gbps", gbps},
                              {"read_ceiling_gbps", ceilings.read_gbps},
                              {"chunk_ceiling_gbps", ceilings.chunk_gbps},
                              {"of_chunk_ceiling", gbps / ceilings.chunk_gbps},
                              {"gflops", gflops},
                              {"fma_ceiling_gflops", ceilings.fma_gflops},
                              {"of_fma_ceiling", gflops / ceilings.fma_gflops}};
  fmt::print("{}\n", row.dump());
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Paged attention of the CPU backend against the machine's ceilings.");
  app.add_option("--isa", options.isa, "avx2 or avx512; default: the best there is");
  app.add_option("--threads", options.threads, "default: all usable processors");
  app.add_option("--heads", options.heads, "query heads");
  app.add_option("--kv-heads", options.kv_heads, "KV heads");
  app.add_option("--head-dim", options.head_dim, "elements of a head");
  app.add_option("--block-size", options.block_size, "tokens of a block");
  app.add_option("--kv", options.kv, "f32, f16 or bf16")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  app.add_option("--samples", options.samples, "timed repetitions")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (options.threads <= 0) options.threads = kernels::cpu::UsableCpus();

  auto backend = kernels::NewCpuBackend({.isa = options.isa, .threads = options.threads});
  if (!backend.ok()) {
    fmt::print(stderr, "{}\n", backend.status().ToString());
    return 1;
  }
  const double error = Error(**backend, options);
  if (!(error < 1e-4)) {
    fmt::print(stderr, "attention differs from the reference: {}\n", error);
    return 1;
  }
  const std::size_t chunk = std::size_t{2} *
                            static_cast<std::size_t>(KvElementBytes(options.dtype())) *
                            static_cast<std::size_t>(options.block_size * options.head_dim);
  const Ceilings ceilings = {.read_gbps = MeasureReadBandwidth(options.threads),
                             .chunk_gbps = MeasureChunkBandwidth(options.threads, chunk),
                             .fma_gflops = MeasureFmaPeak((*backend)->info().isa, options.threads)};
  const std::vector<Step> steps = {{.name = "decode", .count = 1, .before = 255, .now = 1},
                                   {.name = "decode", .count = 16, .before = 255, .now = 1},
                                   {.name = "decode", .count = 64, .before = 511, .now = 1},
                                   {.name = "decode", .count = 1, .before = 4'095, .now = 1},
                                   {.name = "decode", .count = 8, .before = 2'047, .now = 1},
                                   {.name = "prefill", .count = 1, .before = 0, .now = 128},
                                   {.name = "prefill", .count = 1, .before = 0, .now = 1'024},
                                   {.name = "prefill", .count = 1, .before = 1'792, .now = 256}};
  for (const Step& step : steps) Run(**backend, options, step, ceilings);
  return 0;
}

}  // namespace
}  // namespace quire::benchmarks

int main(int argc, char** argv) { return quire::benchmarks::Main(argc, argv); }
