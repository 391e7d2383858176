#include "kernels/cpu/attention_ops.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/kv_cache.h"

namespace quire::kernels::cpu {
namespace {

// Rows of RopeAndWriteKv that one work item takes: about 10 us.
constexpr std::int32_t kRopeRows = 8;

// Rows (tokens times query heads of a KV head) of one tile: enough to pay for reading and widening
// K and V, few enough for a short prompt to keep all workers busy.
constexpr std::int32_t kTileRows = 96;

// Keys of one tile, a multiple of kKeyTile: how finely a long context can be divided.
constexpr std::int32_t kKvSplit = 512;

std::int64_t RoundUp(std::int64_t x, std::int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// One call of Attention: what its work items share.
class AttentionCall {
 public:
  AttentionCall(const AttentionKernels& kernels, const AttentionShape& shape,
                const BatchView& batch, const AttentionPlan& plan, const AttentionWork& work,
                std::int32_t layer, MatrixView qkv, const CpuKvCache& cache, CpuLinearInput& out)
      : kernels_(kernels),
        shape_(shape),
        batch_(batch),
        plan_(plan),
        work_(work),
        layer_(layer),
        qkv_(qkv),
        cache_(cache),
        out_(out),
        group_(shape.num_heads / shape.num_kv_heads),
        rows_(work.max_rows * group_),
        columns_(RoundUp(cache.geometry().v_dim, kKeyGroup)) {}

  std::int64_t memory_floats(int num_workers) const {
    return num_workers * worker_floats() +
           std::int64_t{work_.num_states} * shape_.num_kv_heads * state_floats();
  }
  void set_memory(float* memory, int num_workers) {
    workers_ = memory;
    states_ = memory + num_workers * worker_floats();
  }

  void Run(const AttentionWorkItem& item, std::int32_t head, int worker) const {
    const RowRange& range = work_.ranges[item.range];
    float* memory = workers_ + worker * worker_floats();
    float* scratch = memory + 2 * state_floats();
    if (item.split >= 0) {
      kernels_.attend(Item(range.first_tile + item.split, head),
                      KeptState(range.first_state + item.split, head), scratch);
      return;
    }
    const AttentionState state = StateAt(memory);
    const AttentionState next = StateAt(memory + state_floats());
    const AttentionItem first = Item(range.first_tile, head);
    kernels_.attend(first, state, scratch);
    for (std::int32_t split = 1; split < range.num_splits; ++split) {
      const AttentionItem more = Item(range.first_tile + split, head);
      kernels_.attend(more, next, scratch);
      kernels_.merge(more.num_tokens * more.num_heads, state, next);
    }
    kernels_.finish(first, state, Output(range, head));
  }

  // Once all tiles of a divided range have run.
  void MergeKept(const RowRange& range, std::int32_t head) const {
    const AttentionItem item = Item(range.first_tile, head);
    const AttentionState state = KeptState(range.first_state, head);
    for (std::int32_t split = 1; split < range.num_splits; ++split) {
      kernels_.merge(item.num_tokens * item.num_heads, state,
                     KeptState(range.first_state + split, head));
    }
    kernels_.finish(item, state, Output(range, head));
  }

 private:
  std::int64_t state_floats() const { return 2 * RoundUp(rows_, kKeyGroup) + rows_ * columns_; }
  std::int64_t worker_floats() const {
    const KvGeometry& geometry = cache_.geometry();
    return RoundUp(2 * state_floats() + kernels_.scratch_floats(static_cast<std::int32_t>(rows_),
                                                                geometry.k_dim, geometry.v_dim),
                   kKeyGroup);
  }
  AttentionState StateAt(float* memory) const {
    const std::int64_t padded = RoundUp(rows_, kKeyGroup);
    return {.max = memory,
            .sum = memory + padded,
            .output = memory + 2 * padded,
            .output_stride = columns_};
  }
  AttentionState KeptState(std::int64_t index, std::int32_t head) const {
    return StateAt(states_ + (index * shape_.num_kv_heads + head) * state_floats());
  }

  AttentionItem Item(std::int32_t tile_index, std::int32_t head) const {
    const AttentionTile& tile = plan_.tiles[tile_index];
    const std::int32_t first_position = batch_.first_position[tile.sequence];
    QUIRE_DCHECK(first_position % cache_.geometry().block_size == 0) << first_position;
    return {
        .kv = cache_.Head(layer_, head),
        .blocks = {.block_ids = batch_.block_ids.data() + batch_.block_indptr[tile.sequence],
                   .first_position = first_position},
        .query = qkv_.row(tile.row_begin) + std::int64_t{head} * group_ * shape_.head_dim,
        .query_stride = qkv_.stride,
        .num_tokens = tile.row_end - tile.row_begin,
        .num_heads = group_,
        .position = batch_.positions[tile.row_begin],
        .sliding_window = shape_.sliding_window,
        .kv_begin = tile.kv_begin,
        .kv_end = tile.kv_end,
        .score_scale = static_cast<float>(static_cast<double>(shape_.scale) * std::numbers::log2e)};
  }
  AttentionOutput Output(const RowRange& range, std::int32_t head) const {
    const std::int64_t column = std::int64_t{head} * group_ * cache_.geometry().v_dim;
    return {.out = out_.row(plan_.tiles[range.first_tile].row_begin) + column,
            .stride = out_.stride()};
  }

  const AttentionKernels& kernels_;
  const AttentionShape& shape_;
  const BatchView& batch_;
  const AttentionPlan& plan_;
  const AttentionWork& work_;
  std::int32_t layer_;
  MatrixView qkv_;
  const CpuKvCache& cache_;
  CpuLinearInput& out_;
  std::int32_t group_;    // Query heads of a KV head.
  std::int64_t rows_;     // Of the largest tile.
  std::int64_t columns_;  // v_dim, padded.
  float* workers_ = nullptr;
  float* states_ = nullptr;
};

}  // namespace

AttentionOps::AttentionOps(IsaLevel isa, ThreadPool& pool)
    : kernels_(isa == IsaLevel::kAvx512 ? kAttentionAvx512 : kAttentionAvx2), pool_(pool) {}

absl::StatusOr<std::unique_ptr<KvCache>> AttentionOps::NewKvCache(const KvGeometry& geometry,
                                                                  std::int64_t num_blocks) {
  return CpuKvCache::Create(geometry, num_blocks);
}

AttentionPlanOptions AttentionOps::PlanOptions(const AttentionShape& shape) const {
  const std::int32_t group = shape.num_heads / shape.num_kv_heads;
  return {.max_q_rows = std::max(1, kTileRows / group),
          .kv_split = kKvSplit,
          .sliding_window = shape.sliding_window};
}

float* AttentionOps::Memory(std::int64_t floats) {
  const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
  if (bytes > memory_.size()) {
    auto memory = AlignedBuffer::Allocate(bytes);
    QUIRE_CHECK(memory.ok()) << memory.status().ToString();
    memory_ = *std::move(memory);
  }
  return memory_.as<float>();
}

void AttentionOps::CopyBlocks(KvCache& cache, std::span<const BlockCopy> copies) {
  if (copies.empty()) return;
  const auto& target = static_cast<const CpuKvCache&>(cache);
  const auto bytes = static_cast<std::size_t>(target.geometry().layer_block_bytes());
  pool_.ParallelFor(target.geometry().num_layers, [&](std::int64_t layer, int /*worker*/) {
    for (const BlockCopy& copy : copies) {
      std::memcpy(target.Block(static_cast<std::int32_t>(layer), copy.target),
                  target.Block(static_cast<std::int32_t>(layer), copy.source), bytes);
    }
  });
}

void AttentionOps::RopeAndWriteKv(const RopeTable& rope, const AttentionShape& shape,
                                  const BatchView& batch, std::int32_t layer, MatrixView qkv,
                                  KvCache& cache) {
  const auto& target = static_cast<const CpuKvCache&>(cache);
  const KvGeometry& geometry = target.geometry();
  QUIRE_DCHECK(geometry.k_dim == shape.head_dim && geometry.v_dim == shape.head_dim);
  QUIRE_DCHECK(rope.rotary_dim <= shape.head_dim);
  row_sequence_.clear();
  for (std::int32_t s = 0; s < batch.num_sequences(); ++s) {
    row_sequence_.insert(row_sequence_.end(),
                         static_cast<std::size_t>(batch.q_indptr[s + 1] - batch.q_indptr[s]), s);
  }
  const std::int64_t scratch_floats = RoundUp(geometry.k_dim, kKeyGroup);
  float* scratch = Memory(pool_.num_threads() * scratch_floats);
  const auto write = [&](std::int32_t row, int worker) {
    const std::int32_t sequence = row_sequence_[row];
    const std::int32_t position = batch.positions[row];
    const std::int32_t index = position - batch.first_position[sequence];
    const std::int32_t entry = batch.block_indptr[sequence] + index / geometry.block_size;
    QUIRE_DCHECK(index >= 0 && entry < batch.block_indptr[sequence + 1]) << position;
    const std::int64_t angle = std::int64_t{position} * (rope.rotary_dim / 2);
    kernels_.rope_write({.heads = qkv.row(row),
                         .cos = rope.cos.data() + angle,
                         .sin = rope.sin.data() + angle,
                         .half = rope.rotary_dim / 2,
                         .interleaved = rope.style == RopeStyle::kInterleaved,
                         .num_heads = shape.num_heads,
                         .num_kv_heads = shape.num_kv_heads,
                         .kv = target.Head(layer, 0),
                         .head_stride = target.head_bytes(),
                         .block = batch.block_ids[entry],
                         .offset = index % geometry.block_size,
                         .scratch = scratch + worker * scratch_floats});
  };
  const std::int32_t rows = batch.num_tokens();
  pool_.ParallelFor((rows + kRopeRows - 1) / kRopeRows, [&](std::int64_t item, int worker) {
    const auto begin = static_cast<std::int32_t>(item) * kRopeRows;
    for (std::int32_t row = begin; row < std::min(begin + kRopeRows, rows); ++row)
      write(row, worker);
  });
}

void AttentionOps::Attention(const AttentionShape& shape, const BatchView& batch,
                             const AttentionPlan& plan, std::int32_t layer, MatrixView qkv,
                             const KvCache& cache, CpuLinearInput& out) {
  const int workers = pool_.num_threads();
  DivideAttention(plan, workers, work_);
  AttentionCall call(kernels_, shape, batch, plan, work_, layer, qkv,
                     static_cast<const CpuKvCache&>(cache), out);
  call.set_memory(Memory(call.memory_floats(workers)), workers);

  const std::int64_t heads = shape.num_kv_heads;
  pool_.ParallelFor(
      static_cast<std::int64_t>(work_.items.size()) * heads, [&](std::int64_t i, int worker) {
        call.Run(work_.items[i / heads], static_cast<std::int32_t>(i % heads), worker);
      });
  if (work_.num_states == 0) return;
  pool_.ParallelFor(static_cast<std::int64_t>(work_.ranges.size()) * heads,
                    [&](std::int64_t i, int /*worker*/) {
                      const RowRange& range = work_.ranges[i / heads];
                      if (range.first_state < 0) return;
                      call.MergeKept(range, static_cast<std::int32_t>(i % heads));
                    });
}

}  // namespace quire::kernels::cpu
