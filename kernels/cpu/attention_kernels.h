// The paged-attention kernels of one instruction set level, as function pointers over plain
// structs.
//
// This header goes into files that are compiled with the flags of one level, so it may not define
// inline functions and uses nothing from std (see isa_table.h).
//
// Order of every sum (part of the determinism contract): a score is one chain of fused
// multiply-adds over the dimensions, ascending; keys are met in tiles of kKeyTile at absolute
// positions; inside a tile, a value is added by one chain over its keys, ascending; the running
// maximum is raised per row, only when a tile exceeds it by more than kMaxSlack (log2 units).
// Nothing depends on how many rows share a call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::kernels::cpu {

inline constexpr std::int32_t kKeyTile = 64;   // Keys of one online-softmax step.
inline constexpr std::int32_t kKeyGroup = 16;  // Keys that stand side by side in the cache.
inline constexpr float kMaxSlack = 8.0F;

enum class KvElement : std::uint8_t { kF32, kF16, kBf16 };

// One KV head of one layer of the cache. A block holds, for each KV head, groups of
// min(kKeyGroup, block_size) tokens: {K [k_dim][tokens], V [tokens][v_dim]}.
struct KvHeadView {
  std::byte* base;            // This head in block 0.
  std::int64_t block_stride;  // Bytes from a block to the next.
  std::int64_t group_stride;  // Bytes from a group to the next.
  std::int64_t value_offset;  // Bytes from K to V of a group.
  std::int32_t k_dim;
  std::int32_t v_dim;
  std::int32_t block_size;
  KvElement k_element;
  KvElement v_element;
};

// Where a sequence's tokens are.
struct SequenceBlocks {
  const std::int32_t* block_ids;
  std::int32_t first_position;  // Of the first block; a multiple of block_size.
};

// State of a row between key ranges: true output = output / sum, scores in log2 units. sum == 0: no
// key seen yet. One row is one (token, query head).
struct AttentionState {
  float* max;                  // [rows]
  float* sum;                  // [rows]
  float* output;               // [rows][output_stride]
  std::int64_t output_stride;  // v_dim rounded up to kKeyGroup.
};

// Consecutive tokens of one sequence and all query heads of one KV head, over the keys
// [kv_begin, kv_end). Row t * heads + h is token t with query head h of the group.
struct AttentionItem {
  KvHeadView kv;
  SequenceBlocks blocks;
  const float* query;         // Head 0 of the group, token 0.
  std::int64_t query_stride;  // Floats from a token to the next; heads are k_dim apart.
  std::int32_t num_tokens;
  std::int32_t num_heads;
  std::int32_t position;        // Of token 0.
  std::int32_t sliding_window;  // 0: none.
  std::int32_t kv_begin;
  std::int32_t kv_end;
  float score_scale;  // scale * log2(e)
};

// Where finished rows go.
struct AttentionOutput {
  float* out;           // Head 0 of the group, token 0; heads are v_dim apart.
  std::int64_t stride;  // Floats from a token to the next.
};

// One token of RopeAndWriteKv.
struct RopeWriteItem {
  float* heads;  // Query heads, KV heads' keys, KV heads' values; each head_dim long.
  const float* cos;
  const float* sin;
  std::int32_t half;  // rotary_dim / 2
  bool interleaved;
  std::int32_t num_heads;
  std::int32_t num_kv_heads;
  KvHeadView kv;             // KV head 0.
  std::int64_t head_stride;  // Bytes from a KV head to the next.
  std::int64_t block;
  std::int32_t offset;  // Slot inside the block.
  float* scratch;       // [k_dim]
};

struct AttentionKernels {
  // Floats of scratch that `attend` needs for `rows` rows.
  std::int64_t (*scratch_floats)(std::int32_t rows, std::int32_t k_dim, std::int32_t v_dim);
  // Replaces `state` by that of the item's keys alone.
  void (*attend)(const AttentionItem& item, const AttentionState& state, float* scratch);
  // left = left and then right.
  void (*merge)(std::int32_t rows, const AttentionState& left, const AttentionState& right);
  // Divides by the sums and stores.
  void (*finish)(const AttentionItem& item, const AttentionState& state,
                 const AttentionOutput& output);
  void (*rope_write)(const RopeWriteItem& item);
};

extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;

}  // namespace quire::kernels::cpu
