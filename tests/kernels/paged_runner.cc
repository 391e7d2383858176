#include "tests/kernels/paged_runner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "kernels/math.h"
#include "kernels/rope.h"
#include "tests/kernels/backends.h"

namespace quire::kernels {
namespace {

constexpr int kMaxPositions = 4'096;

double RoundTo(KvDtype dtype, double value) {
  const auto f = static_cast<float>(value);
  switch (dtype) {
    case KvDtype::kF32:
      return f;
    case KvDtype::kF16:
      return F16ToF32(F32ToF16(f));
    case KvDtype::kBf16:
      return Bf16ToF32(F32ToBf16(f));
  }
  return f;
}

std::vector<double> Rotated(const RopeTable& rope, int position, const float* head, int dim) {
  std::vector<double> out(head, head + dim);
  const int half = rope.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const int a = rope.style == RopeStyle::kInterleaved ? 2 * i : i;
    const int b = rope.style == RopeStyle::kInterleaved ? 2 * i + 1 : i + half;
    const double c = rope.cos[static_cast<std::size_t>(position) * half + i];
    const double s = rope.sin[static_cast<std::size_t>(position) * half + i];
    out[a] = head[a] * c - head[b] * s;
    out[b] = head[b] * c + head[a] * s;
  }
  return out;
}

// The arrays behind a BatchView.
struct FlatBatch {
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> q_indptr = {0};
  std::vector<std::int32_t> kv_lens;
  std::vector<std::int32_t> block_indptr = {0};
  std::vector<std::int32_t> block_ids;
  std::vector<std::int32_t> first_position;
  std::vector<float> qkv;

  void Add(const PagedSequence& sequence, int begin, int end) {
    for (int position = begin; position < end; ++position) {
      tokens.push_back(0);
      positions.push_back(position);
      qkv.insert(qkv.end(), sequence.rows[position].begin(), sequence.rows[position].end());
    }
    q_indptr.push_back(static_cast<std::int32_t>(positions.size()));
    kv_lens.push_back(end);
    block_ids.insert(block_ids.end(), sequence.blocks.begin(), sequence.blocks.end());
    block_indptr.push_back(static_cast<std::int32_t>(block_ids.size()));
    first_position.push_back(sequence.first_position);
  }
  BatchView view() const {
    BatchView batch;
    batch.token_ids = tokens;
    batch.positions = positions;
    batch.q_indptr = q_indptr;
    batch.kv_lens = kv_lens;
    batch.block_indptr = block_indptr;
    batch.block_ids = block_ids;
    batch.first_position = first_position;
    return batch;
  }
};

}  // namespace

AttentionShape PagedSpec::shape() const {
  return {.num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
          .sliding_window = sliding_window};
}

KvGeometry PagedSpec::geometry() const {
  return {.num_layers = num_layers,
          .num_kv_heads = num_kv_heads,
          .k_dim = head_dim,
          .v_dim = head_dim,
          .block_size = block_size,
          .k_dtype = k_dtype,
          .v_dtype = v_dtype};
}

std::vector<std::vector<float>> RandomRows(const PagedSpec& spec, int length, std::uint64_t seed) {
  std::vector<std::vector<float>> rows;
  std::uint64_t index = 0;
  for (int i = 0; i < length; ++i) {
    std::vector<float>& row = rows.emplace_back();
    while (static_cast<int>(row.size()) < spec.width()) {
      // Box and Muller 1958.
      const double radius = std::sqrt(-2 * std::log(PhiloxUniform(seed, 0, index)));
      const double angle = 2 * std::numbers::pi * PhiloxUniform(seed, 1, index++);
      row.push_back(static_cast<float>(radius * std::cos(angle)));
    }
  }
  return rows;
}

PagedSequence MakeSequence(const PagedSpec& spec, int length, std::uint64_t seed, int first_block,
                           int block_step) {
  PagedSequence sequence;
  sequence.rows = RandomRows(spec, length, seed);
  const int blocks = (length + spec.block_size - 1) / spec.block_size;
  for (int i = 0; i < blocks; ++i) {
    const int block = first_block + i * block_step;
    QUIRE_CHECK(block >= 0 && block < spec.num_blocks) << block;
    sequence.blocks.push_back(block);
  }
  return sequence;
}

PagedRunner::PagedRunner(std::unique_ptr<Backend> backend, const PagedSpec& spec)
    : spec_(spec), backend_(std::move(backend)) {
  auto cache = backend_->NewKvCache(spec.geometry(), spec.num_blocks);
  QUIRE_CHECK(cache.ok()) << cache.status().ToString();
  cache_ = *std::move(cache);
  rope_ =
      MakeRopeTable(spec.style, RopeInverseFrequencies(10'000.0, spec.rotary_dim), kMaxPositions);
}

void PagedRunner::Step(const std::vector<Chunk>& chunks, int layer) {
  FlatBatch flat;
  for (const Chunk& chunk : chunks) {
    const int begin = chunk.sequence->computed();
    QUIRE_CHECK(begin + chunk.tokens <= chunk.sequence->length());
    flat.Add(*chunk.sequence, begin, begin + chunk.tokens);
  }
  const BatchView batch = flat.view();
  const MatrixView qkv = {.data = flat.qkv.data(),
                          .rows = batch.num_tokens(),
                          .cols = spec_.width(),
                          .stride = spec_.width()};
  AttentionPlan plan;
  PlanAttention(batch, backend_->PlanOptions(spec_.shape()), plan);
  const auto out = backend_->NewLinearInput(batch.num_tokens(), spec_.num_heads * spec_.head_dim);
  backend_->RopeAndWriteKv(rope_, spec_.shape(), batch, layer, qkv, *cache_);
  backend_->Attention(spec_.shape(), batch, plan, layer, qkv, *cache_, *out);
  int row = 0;
  for (const Chunk& chunk : chunks) {
    for (int i = 0; i < chunk.tokens; ++i) {
      chunk.sequence->outputs.push_back(InputRow(*out, row++));
    }
  }
}

void PagedRunner::Finish(PagedSequence& sequence, int chunk) {
  while (sequence.computed() < sequence.length()) {
    Step({{&sequence, std::min(chunk, sequence.length() - sequence.computed())}});
  }
}

void PagedRunner::Poison() {
  PagedSpec no_window = spec_;
  no_window.sliding_window = 0;
  for (int layer = 0; layer < spec_.num_layers; ++layer) {
    for (int block = 0; block < spec_.num_blocks; ++block) {
      PagedSequence sequence;
      sequence.blocks = {block};
      sequence.rows.assign(
          spec_.block_size,
          std::vector<float>(spec_.width(), std::numeric_limits<float>::quiet_NaN()));
      FlatBatch flat;
      flat.Add(sequence, 0, spec_.block_size);
      const BatchView batch = flat.view();
      const MatrixView qkv = {.data = flat.qkv.data(),
                              .rows = batch.num_tokens(),
                              .cols = spec_.width(),
                              .stride = spec_.width()};
      backend_->RopeAndWriteKv(rope_, no_window.shape(), batch, layer, qkv, *cache_);
    }
  }
}

std::vector<std::vector<double>> ExpectedOutputs(const PagedSpec& spec, const RopeTable& rope,
                                                 const PagedSequence& sequence) {
  const int dim = spec.head_dim;
  const int group = spec.num_heads / spec.num_kv_heads;
  const int length = sequence.length();
  // [kv_head][position][dim]
  std::vector<std::vector<std::vector<double>>> keys(spec.num_kv_heads);
  std::vector<std::vector<std::vector<double>>> values(spec.num_kv_heads);
  for (int h = 0; h < spec.num_kv_heads; ++h) {
    for (int p = 0; p < length; ++p) {
      const float* key = sequence.rows[p].data() + (spec.num_heads + h) * dim;
      const float* value = key + spec.num_kv_heads * dim;
      keys[h].push_back(Rotated(rope, p, key, dim));
      for (double& x : keys[h].back()) x = RoundTo(spec.k_dtype, x);
      values[h].emplace_back(value, value + dim);
      for (double& x : values[h].back()) x = RoundTo(spec.v_dtype, x);
    }
  }
  std::vector<std::vector<double>> outputs(length);
  for (int p = 0; p < length; ++p) {
    const int first = spec.sliding_window > 0 ? std::max(0, p + 1 - spec.sliding_window) : 0;
    for (int h = 0; h < spec.num_heads; ++h) {
      const std::vector<double> query = Rotated(rope, p, sequence.rows[p].data() + h * dim, dim);
      std::vector<double> weights;
      for (int k = first; k <= p; ++k) {
        const std::vector<double>& key = keys[h / group][k];
        weights.push_back(std::inner_product(query.begin(), query.end(), key.begin(), 0.0) *
                          spec.shape().scale);
      }
      const double max = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& w : weights) sum += (w = std::exp(w - max));
      for (int d = 0; d < dim; ++d) {
        double out = 0;
        for (int k = first; k <= p; ++k) out += weights[k - first] * values[h / group][k][d];
        outputs[p].push_back(out / sum);
      }
    }
  }
  return outputs;
}

double RelativeError(const std::vector<std::vector<float>>& actual,
                     const std::vector<std::vector<double>>& expected) {
  QUIRE_CHECK(actual.size() == expected.size());
  double error = 0;
  double norm = 0;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    QUIRE_CHECK(actual[r].size() == expected[r].size());
    for (std::size_t i = 0; i < expected[r].size(); ++i) {
      error += (actual[r][i] - expected[r][i]) * (actual[r][i] - expected[r][i]);
      norm += expected[r][i] * expected[r][i];
    }
  }
  return std::sqrt(error / norm);
}

}  // namespace quire::kernels
