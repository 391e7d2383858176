// Times the dense products of a decoder on the CPU backend: every weight format, from one row to a
// prefill chunk, weights coming from memory. Prints one JSON line per figure; each is set against
// what the machine reached in the same process (read bandwidth, multiply-add peak). Results are
// checked against a double-precision sum before they are timed.
//
//   kernels_bench --threads 2 --format int4 --rows 1,16
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/machine_ceilings.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"

namespace quire::benchmarks {
namespace {

using kernels::Backend;
using kernels::LinearInput;
using kernels::LinearWeights;
using kernels::MatrixSource;
using kernels::MatrixView;
using kernels::WeightFormat;

// A reproducible number from an index.
std::uint32_t Mix(std::uint64_t x) {
  x *= 0x9e3779b97f4a7c15U;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93U;
  return static_cast<std::uint32_t>(x >> 32);
}

// Pseudo-random weights in the encoding that a format asks for.
class RandomSource final : public MatrixSource {
 public:
  RandomSource(std::int64_t rows, std::int64_t cols, WeightFormat format, std::uint64_t seed)
      : rows_(rows), cols_(cols), format_(format), seed_(seed << 40) {}

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  Encoding encoding() const override {
    if (format_ == WeightFormat::kInt8Group32) return Encoding::kInt8Group32;
    if (format_ == WeightFormat::kInt4Group32) return Encoding::kInt4Group32;
    return Encoding::kFloat;
  }
  void ReadRow(std::int64_t row, std::span<float> out) const override {
    if (encoding() == Encoding::kFloat) {
      for (std::int64_t k = 0; k < cols_; ++k) {
        out[k] = static_cast<float>(Code(row, k)) / 128;  // Exact in bf16.
      }
      return;
    }
    std::vector<std::int8_t> codes(static_cast<std::size_t>(cols_));
    std::vector<float> scales(static_cast<std::size_t>(cols_ / 32));
    std::vector<float> offsets(scales.size());
    ReadGroups(row, codes, scales, offsets);
    for (std::size_t k = 0; k < codes.size(); ++k) {
      out[k] = scales[k / 32] * static_cast<float>(codes[k]) + offsets[k / 32];
    }
  }
  void ReadGroups(std::int64_t row, std::span<std::int8_t> codes, std::span<float> scales,
                  std::span<float> offsets) const override {
    const bool int4 = format_ == WeightFormat::kInt4Group32;
    for (std::size_t k = 0; k < codes.size(); ++k) {
      const std::int8_t code = Code(row, static_cast<std::int64_t>(k));
      codes[k] = int4 ? static_cast<std::int8_t>(code & 15) : code;
    }
    for (std::size_t b = 0; b < scales.size(); ++b) {
      scales[b] = int4 ? 0.125F : 1.0F / 128;
      offsets[b] = int4 ? -1.0F : 0.0F;
    }
  }

 private:
  std::int8_t Code(std::int64_t row, std::int64_t k) const {
    return static_cast<std::int8_t>(Mix(seed_ + static_cast<std::uint64_t>(row * cols_ + k)));
  }

  std::int64_t rows_;
  std::int64_t cols_;
  WeightFormat format_;
  std::uint64_t seed_;
};

struct Shape {
  std::string name;
  std::int32_t outputs;
  std::int32_t inputs;
  std::int32_t per_step;  // How often a step of SmolLM2-135M runs it.
};
const std::vector<Shape> kShapes = {{"qkv", 960, 576, 30},
                                    {"attn_out", 576, 576, 30},
                                    {"gate_up", 3072, 576, 30},
                                    {"down", 576, 1536, 30},
                                    {"head", 49152, 576, 1}};

struct Ceilings {
  double read_gbps;
  double fma_gflops;
};

struct Options {
  std::string isa;
  int threads = 0;
  std::vector<std::string> formats = {"f32", "bf16", "int8", "int4"};
  std::vector<int> rows = {1, 4, 16, 64, 256};
  std::vector<std::string> shapes = {"qkv", "attn_out", "gate_up", "down", "head"};
  int samples = 15;
};

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::int64_t InvoluntarySwitches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

// Rows of random activations, one set per distinct number of features.
class Activations {
 public:
  Activations(Backend& backend, std::int32_t rows, std::int32_t features)
      : input_(backend.NewLinearInput(rows, features)),
        x_(static_cast<std::size_t>(rows) * features),
        gain_(static_cast<std::size_t>(features), 1.0F),
        rows_(rows),
        features_(features) {
    for (std::size_t i = 0; i < x_.size(); ++i) {
      x_[i] = static_cast<float>(static_cast<std::int8_t>(Mix(i))) / 64;
    }
    backend.Norm({x_.data(), rows, features, features}, gain_, 1e-5F, *input_);
  }
  const LinearInput& input() const { return *input_; }

  // Largest difference between out and the product in double, relative to the norm of the row.
  double Error(const MatrixSource& weights, MatrixView out) const {
    double worst = 0;
    std::vector<float> w(static_cast<std::size_t>(features_));
    for (std::int32_t r = 0; r < rows_; r += std::max(1, rows_ / 3)) {
      double square = 0;
      for (std::int32_t k = 0; k < features_; ++k) square += x(r, k) * x(r, k);
      const double rms = std::sqrt(square / features_ + 1e-5);
      for (std::int32_t c = 0; c < out.cols; c += std::max(1, out.cols / 61)) {
        weights.ReadRow(c, w);
        double sum = 0;
        double size = 0;
        for (std::int32_t k = 0; k < features_; ++k) {
          const double term = x(r, k) / rms * w[static_cast<std::size_t>(k)];
          sum += term;
          size += term * term;
        }
        worst = std::max(worst, std::abs(sum - out.row(r)[c]) / std::sqrt(size + 1e-30));
      }
    }
    return worst;
  }

 private:
  double x(std::int32_t r, std::int32_t k) const {
    return x_[static_cast<std::size_t>(r) * features_ + k];
  }

  std::unique_ptr<LinearInput> input_;
  std::vector<float> x_;
  std::vector<float> gain_;
  std::int32_t rows_;
  std::int32_t features_;
};

// Median seconds of one product, over samples without an involuntary context switch (all samples if
// there are none such). Each sample runs through all copies of the weights.
double MedianSeconds(Backend& backend, const std::vector<std::unique_ptr<LinearWeights>>& copies,
                     const Activations& activations, MatrixView out, int samples) {
  std::vector<double> clean;
  std::vector<double> all;
  for (int i = 0; i < samples; ++i) {
    const std::int64_t switches = InvoluntarySwitches();
    const double start = Seconds();
    for (const auto& weights : copies) {
      backend.Linear(*weights, activations.input(), kernels::Epilogue::kStore, out);
    }
    const double seconds = (Seconds() - start) / static_cast<double>(copies.size());
    all.push_back(seconds);
    if (InvoluntarySwitches() == switches) clean.push_back(seconds);
  }
  std::vector<double>& used = clean.empty() ? all : clean;
  std::nth_element(used.begin(), used.begin() + static_cast<std::ptrdiff_t>(used.size() / 2),
                   used.end());
  return used[used.size() / 2];
}

// True when all figures of this shape and format were right.
bool BenchShape(Backend& backend, const Options& options, const Ceilings& ceilings,
                const Shape& shape, const std::string& format_name, WeightFormat format,
                std::vector<double>& step_seconds) {
  constexpr std::int64_t kRotatedBytes = std::int64_t{96} << 20;  // Well beyond the caches.
  const RandomSource source(shape.outputs, shape.inputs, format, 1);
  const MatrixSource* sources[] = {&source};
  std::vector<std::unique_ptr<LinearWeights>> copies;
  std::int64_t bytes = 0;
  while (copies.empty() || bytes < kRotatedBytes) {
    auto packed = backend.PackLinear(sources, format);
    if (!packed.ok()) {
      fmt::print(stderr, "kernels_bench: {}\n", packed.status().ToString());
      return false;
    }
    bytes += (*packed)->bytes();
    copies.push_back(*std::move(packed));
  }
  const auto weight_bytes = static_cast<double>(copies[0]->bytes());
  for (std::size_t i = 0; i < options.rows.size(); ++i) {
    const int rows = options.rows[i];
    const Activations activations(backend, rows, shape.inputs);
    std::vector<float> result(static_cast<std::size_t>(rows) * shape.outputs);
    const MatrixView out = {result.data(), rows, shape.outputs, shape.outputs};
    backend.Linear(*copies[0], activations.input(), kernels::Epilogue::kStore, out);
    const double error = activations.Error(source, out);
    if (!(error < 1e-5)) {
      fmt::print(stderr, "kernels_bench: {} {} rows {}: relative error {}\n", shape.name,
                 format_name, rows, error);
      return false;
    }
    const double seconds = MedianSeconds(backend, copies, activations, out, options.samples);
    step_seconds[i] += seconds * shape.per_step;
    const double flops = 2.0 * rows * shape.outputs * shape.inputs;
    const double floor =
        std::max(weight_bytes / (ceilings.read_gbps * 1e9), flops / (ceilings.fma_gflops * 1e9));
    const nlohmann::ordered_json line = {{"bench", "linear"},
                                         {"shape", shape.name},
                                         {"outputs", shape.outputs},
                                         {"inputs", shape.inputs},
                                         {"format", format_name},
                                         {"rows", rows},
                                         {"us", std::round(seconds * 1e7) / 10},
                                         {"gbps", std::round(weight_bytes / seconds / 1e7) / 100},
                                         {"gflops", std::round(flops / seconds / 1e8) / 10},
                                         {"of_ceiling", std::round(floor / seconds * 1000) / 1000},
                                         {"error", error}};
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
  return true;
}

int Run(const Options& options) {
  auto backend = kernels::NewCpuBackend({.isa = options.isa, .threads = options.threads});
  if (!backend.ok()) {
    fmt::print(stderr, "kernels_bench: {}\n", backend.status().ToString());
    return 1;
  }
  const kernels::BackendInfo info = (*backend)->info();
  const Ceilings ceilings = {MeasureReadBandwidth(options.threads),
                             MeasureFmaPeak(info.isa, options.threads)};
  const nlohmann::ordered_json machine = {{"bench", "machine"},
                                          {"isa", info.isa},
                                          {"threads", options.threads},
                                          {"read_gbps", ceilings.read_gbps},
                                          {"fma_gflops", ceilings.fma_gflops}};
  fmt::print("{}\n", machine.dump());
  const std::vector<std::pair<std::string, WeightFormat>> formats = {
      {"f32", WeightFormat::kF32},
      {"bf16", WeightFormat::kBf16},
      {"int8", WeightFormat::kInt8Group32},
      {"int4", WeightFormat::kInt4Group32}};
  const auto wanted = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const auto& [name, format] : formats) {
    if (!wanted(options.formats, name)) continue;
    std::vector<double> step_seconds(options.rows.size());
    for (const Shape& shape : kShapes) {
      if (!wanted(options.shapes, shape.name)) continue;
      if (!BenchShape(**backend, options, ceilings, shape, name, format, step_seconds)) return 1;
    }
    for (std::size_t i = 0; i < options.rows.size(); ++i) {
      const nlohmann::ordered_json line = {{"bench", "linears_of_a_step"},
                                           {"format", name},
                                           {"rows", options.rows[i]},
                                           {"ms", std::round(step_seconds[i] * 1e5) / 100}};
      fmt::print("{}\n", line.dump());
    }
  }
  return 0;
}

}  // namespace
}  // namespace quire::benchmarks

int main(int argc, char** argv) {
  quire::benchmarks::Options options;
  options.threads = quire::kernels::cpu::UsableCpus();
  CLI::App app("Times the CPU backend's dense products and compares them with the machine.");
  app.add_option("--isa", options.isa, "avx2 or avx512; the best one of this machine if not given");
  app.add_option("--threads", options.threads, "Workers")->check(CLI::Range(1, 1024));
  app.add_option("--format", options.formats, "f32, bf16, int8, int4")->delimiter(',');
  app.add_option("--rows", options.rows, "Rows of activations")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  app.add_option("--shape", options.shapes, "qkv, attn_out, gate_up, down, head")->delimiter(',');
  app.add_option("--samples", options.samples, "Passes per figure")->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);
  return quire::benchmarks::Run(options);
}
