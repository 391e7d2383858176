// The CPU backend's KV cache. Layout: [layer][block][kv_head][group of min(16, block_size)
// tokens]{K [k_dim][tokens], V [tokens][v_dim]}. Keys of a group stand side by side, so that a
// vector register holds the scores of 16 keys without any horizontal sum; K and V alternate group
// by group, so that a short context is one contiguous run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/attention_kernels.h"

namespace quire::kernels::cpu {

// Bytes of a cache. INVALID_ARGUMENT for a bad geometry or a negative count, RESOURCE_EXHAUSTED
// when blocks or bytes cannot be addressed.
absl::StatusOr<std::int64_t> KvCacheBytes(const KvGeometry& geometry, std::int64_t num_blocks);

class CpuKvCache final : public KvCache {
 public:
  // Reserves address space; the system commits pages when they are first written. Errors: as
  // KvCacheBytes, and RESOURCE_EXHAUSTED when the system refuses.
  static absl::StatusOr<std::unique_ptr<CpuKvCache>> Create(const KvGeometry& geometry,
                                                            std::int64_t num_blocks);

  const KvGeometry& geometry() const override { return geometry_; }
  std::int64_t num_blocks() const override { return num_blocks_; }

  // Where head `head` of a layer lies; what the kernels work on.
  KvHeadView Head(std::int32_t layer, std::int32_t head) const;
  // Bytes from one KV head of a block to the next.
  std::int64_t head_bytes() const { return geometry_.layer_block_bytes() / geometry_.num_kv_heads; }
  // One block of one layer: geometry().layer_block_bytes() bytes.
  std::byte* Block(std::int32_t layer, std::int64_t block) const {
    return memory_.data() + (layer * num_blocks_ + block) * geometry_.layer_block_bytes();
  }

 private:
  CpuKvCache(const KvGeometry& geometry, std::int64_t num_blocks, AlignedBuffer memory)
      : geometry_(geometry), num_blocks_(num_blocks), memory_(std::move(memory)) {}

  KvGeometry geometry_;
  std::int64_t num_blocks_;
  AlignedBuffer memory_;
};

}  // namespace quire::kernels::cpu
