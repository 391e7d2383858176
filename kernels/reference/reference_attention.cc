#include "kernels/reference/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/math.h"

namespace quire::kernels::reference {
namespace {

// Where the token at an absolute position of a sequence is stored.
struct Slot {
  std::int64_t block;
  std::int32_t offset;
};

Slot FindSlot(const BatchView& batch, std::int32_t sequence, std::int32_t position,
              std::int32_t block_size) {
  const std::int32_t index = position - batch.first_position[sequence];
  QUIRE_DCHECK(index >= 0) << "position " << position << " is before the table";
  const std::int32_t entry = batch.block_indptr[sequence] + index / block_size;
  QUIRE_DCHECK(entry < batch.block_indptr[sequence + 1]) << "position " << position;
  return {.block = batch.block_ids[entry], .offset = index % block_size};
}

void Rotate(const RopeTable& rope, std::int32_t position, float* head) {
  const std::int32_t half = rope.rotary_dim / 2;
  const std::size_t row = static_cast<std::size_t>(position) * half;
  for (std::int32_t i = 0; i < half; ++i) {
    const bool interleaved = rope.style == RopeStyle::kInterleaved;
    float& first = head[interleaved ? 2 * i : i];
    float& second = head[interleaved ? 2 * i + 1 : i + half];
    const double x = first;
    const double y = second;
    const double c = rope.cos[row + i];
    const double s = rope.sin[row + i];
    first = static_cast<float>(x * c - y * s);
    second = static_cast<float>(y * c + x * s);
  }
}

// Softmax attention over some of a row's keys, not yet divided by the sum: the true output is
// output / sum; max is what was subtracted before exponentiating.
struct PartialAttention {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  std::vector<double> output;  // [v_dim]
};

void MergeRight(const PartialAttention& right, PartialAttention& left) {
  if (right.sum == 0) return;
  const double max = std::max(left.max, right.max);
  const double left_scale = left.sum == 0 ? 0.0 : Exp(left.max - max);
  const double right_scale = Exp(right.max - max);
  left.max = max;
  left.sum = left.sum * left_scale + right.sum * right_scale;
  for (std::size_t d = 0; d < left.output.size(); ++d) {
    left.output[d] = left.output[d] * left_scale + right.output[d] * right_scale;
  }
}

class RowAttention {
 public:
  RowAttention(const AttentionShape& shape, const BatchView& batch, std::int32_t layer,
               MatrixView qkv, const ReferenceKvCache& cache)
      : shape_(shape),
        batch_(batch),
        layer_(layer),
        qkv_(qkv),
        cache_(cache),
        key_(static_cast<std::size_t>(cache.geometry().k_dim)),
        value_(static_cast<std::size_t>(cache.geometry().v_dim)) {}

  // Query head `head` of `row` over the keys of `tile` that it sees.
  PartialAttention Run(const AttentionTile& tile, std::int32_t row, std::int32_t head) {
    const std::int32_t position = batch_.positions[row];
    std::int32_t begin = tile.kv_begin;
    if (shape_.sliding_window > 0) begin = std::max(begin, position + 1 - shape_.sliding_window);
    const std::int32_t end = std::min(tile.kv_end, position + 1);
    PartialAttention result;
    result.output.assign(value_.size(), 0.0);
    scores_.clear();
    for (std::int32_t key = begin; key < end; ++key) {
      scores_.push_back(Score(tile.sequence, key, row, head));
      result.max = std::max(result.max, scores_.back());
    }
    for (std::int32_t key = begin; key < end; ++key) {
      AddValue(tile.sequence, key, head, Exp(scores_[key - begin] - result.max), result);
    }
    return result;
  }

 private:
  std::int32_t kv_head(std::int32_t head) const {
    return head / (shape_.num_heads / shape_.num_kv_heads);
  }

  double Score(std::int32_t sequence, std::int32_t key, std::int32_t row, std::int32_t head) {
    const Slot slot = FindSlot(batch_, sequence, key, cache_.geometry().block_size);
    cache_.ReadKey(layer_, slot.block, kv_head(head), slot.offset, key_);
    const float* query = qkv_.row(row) + std::int64_t{head} * shape_.head_dim;
    double dot = 0;
    for (std::size_t d = 0; d < key_.size(); ++d) dot += double{query[d]} * key_[d];
    return dot * shape_.scale;
  }

  void AddValue(std::int32_t sequence, std::int32_t key, std::int32_t head, double weight,
                PartialAttention& result) {
    const Slot slot = FindSlot(batch_, sequence, key, cache_.geometry().block_size);
    cache_.ReadValue(layer_, slot.block, kv_head(head), slot.offset, value_);
    result.sum += weight;
    for (std::size_t d = 0; d < value_.size(); ++d) result.output[d] += weight * value_[d];
  }

  const AttentionShape& shape_;
  const BatchView& batch_;
  std::int32_t layer_;
  MatrixView qkv_;
  const ReferenceKvCache& cache_;
  std::vector<double> scores_;
  std::vector<float> key_;
  std::vector<float> value_;
};

}  // namespace

void RopeAndWriteKv(const RopeTable& rope, const AttentionShape& shape, const BatchView& batch,
                    std::int32_t layer, MatrixView qkv, ReferenceKvCache& cache) {
  const std::int64_t dim = shape.head_dim;
  std::vector<float> key(static_cast<std::size_t>(dim));
  for (std::int32_t sequence = 0; sequence < batch.num_sequences(); ++sequence) {
    for (std::int32_t row = batch.q_indptr[sequence]; row < batch.q_indptr[sequence + 1]; ++row) {
      const std::int32_t position = batch.positions[row];
      float* heads = qkv.row(row);
      for (std::int32_t h = 0; h < shape.num_heads; ++h) Rotate(rope, position, heads + h * dim);
      const float* keys = heads + shape.num_heads * dim;
      const float* values = keys + shape.num_kv_heads * dim;
      const Slot slot = FindSlot(batch, sequence, position, cache.geometry().block_size);
      for (std::int32_t h = 0; h < shape.num_kv_heads; ++h) {
        key.assign(keys + h * dim, keys + (h + 1) * dim);
        Rotate(rope, position, key.data());
        cache.WriteKey(layer, slot.block, h, slot.offset, key);
        cache.WriteValue(layer, slot.block, h, slot.offset,
                         {values + h * dim, static_cast<std::size_t>(dim)});
      }
    }
  }
}

void Attention(const AttentionShape& shape, const BatchView& batch, const AttentionPlan& plan,
               std::int32_t layer, MatrixView qkv, const ReferenceKvCache& cache, MatrixView out) {
  RowAttention rows(shape, batch, layer, qkv, cache);
  for (std::size_t first = 0; first < plan.tiles.size();) {
    const AttentionTile& tile = plan.tiles[first];
    for (std::int32_t row = tile.row_begin; row < tile.row_end; ++row) {
      for (std::int32_t head = 0; head < shape.num_heads; ++head) {
        PartialAttention merged = rows.Run(tile, row, head);
        for (std::int32_t split = 1; split < tile.num_splits; ++split) {
          MergeRight(rows.Run(plan.tiles[first + split], row, head), merged);
        }
        float* target = out.row(row) + std::int64_t{head} * cache.geometry().v_dim;
        for (std::size_t d = 0; d < merged.output.size(); ++d) {
          target[d] = static_cast<float>(merged.output[d] / merged.sum);
        }
      }
    }
    first += static_cast<std::size_t>(tile.num_splits);
  }
}

}  // namespace quire::kernels::reference
