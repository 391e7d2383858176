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
  void ReadKey(std::int32_t layer, std::int64_t block, std::int32_t head, std::int32_t slot,
               std::span<float> key) const;
  void ReadValue(std::int32_t layer, std::int64_t block, std::int32_t head, std::int32_t slot,
                 std::span<float> value) const;

  void CopyBlock(const BlockCopy& copy);

 private:
  // First byte of one slot's key or value.
  std::byte* Key(std::int32_t layer, std::int64_t block, std::int32_t head,
                 std::int32_t slot) const;
  std::byte* Value(std::int32_t layer, std::int64_t block, std::int32_t head,
                   std::int32_t slot) const;

  KvGeometry geometry_;
  std::int64_t num_blocks_;
  cpu::AlignedBuffer memory_;
};

}  // namespace quire::kernels::reference
