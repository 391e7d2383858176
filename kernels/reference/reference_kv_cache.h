// The reference backend's KV cache: [layer][block][kv_head]{K[slot][k_dim], V[slot][v_dim]}, plain
// row-major order inside a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cpu/aligned_buffer.h"

namespace quire::kernels::reference {

class ReferenceKvCache final : public KvCache {
 public:
  // `memory` holds num_blocks * geometry.bytes_per_block() bytes.
  ReferenceKvCache(const KvGeometry& geometry, std::int64_t num_blocks, cpu::AlignedBuffer memory)
      : geometry_(geometry), num_blocks_(num_blocks), memory_(std::move(memory)) {}

  const KvGeometry& geometry() const override { return geometry_; }
  std::int64_t num_blocks() const override { return num_blocks_; }

  // Key or value of one slot. Writing rounds to the element type.
  void WriteKey(std::int32_t layer, std::int64_t block, std::int32_t head, std::int32_t slot,
                std::span<const float> key);
  void WriteValue(std::int32_t layer, std::int64_t block, std::int32_t head, std::int32_t slot,
                  std::span<const float> value);
  float Key(std::int32_t layer, std::int64_t block, std::int32_t head, std::int32_t slot,
            std::int32_t dim) const;
  float Value(std::int32_t layer, std::int64_t block, std::int32_t head, std::int32_t slot,
              std::int32_t dim) const;

  void CopyBlock(const BlockCopy& copy);

 private:
  // First byte of K of one head in a block; V follows K.
  std::byte* Head(std::int32_t layer, std::int64_t block, std::int32_t head) const;
  std::int64_t key_bytes() const {
    return std::int64_t{geometry_.block_size} * geometry_.k_dim * KvElementBytes(geometry_.k_dtype);
  }

  KvGeometry geometry_;
  std::int64_t num_blocks_;
  cpu::AlignedBuffer memory_;
};

}  // namespace quire::kernels::reference
