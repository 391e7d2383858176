#include "kernels/reference/reference_kv_cache.h"

#include <cstring>

#include "base/check.h"
#include "kernels/math.h"

namespace quire::kernels::reference {
namespace {

void Store(KvDtype dtype, float value, std::byte* base, std::int64_t index) {
  if (dtype == KvDtype::kF32) {
    std::memcpy(base + index * 4, &value, 4);
    return;
  }
  const std::uint16_t bits = dtype == KvDtype::kF16 ? F32ToF16(value) : F32ToBf16(value);
  std::memcpy(base + index * 2, &bits, 2);
}

float Load(KvDtype dtype, const std::byte* base, std::int64_t index) {
  if (dtype == KvDtype::kF32) {
    float value = 0;
    std::memcpy(&value, base + index * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, base + index * 2, 2);
  return dtype == KvDtype::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
}

}  // namespace

std::byte* ReferenceKvCache::Head(std::int32_t layer, std::int64_t block, std::int32_t head) const {
  QUIRE_DCHECK(block >= 0 && block < num_blocks_) << block;
  const std::int64_t layer_bytes = geometry_.layer_block_bytes();
  const std::int64_t head_bytes = layer_bytes / geometry_.num_kv_heads;
  return memory_.data() + (layer * num_blocks_ + block) * layer_bytes + head * head_bytes;
}

void ReferenceKvCache::WriteKey(std::int32_t layer, std::int64_t block, std::int32_t head,
                                std::int32_t slot, std::span<const float> key) {
  std::byte* base = Head(layer, block, head);
  for (std::int32_t dim = 0; dim < geometry_.k_dim; ++dim) {
    Store(geometry_.k_dtype, key[dim], base, std::int64_t{slot} * geometry_.k_dim + dim);
  }
}

void ReferenceKvCache::WriteValue(std::int32_t layer, std::int64_t block, std::int32_t head,
                                  std::int32_t slot, std::span<const float> value) {
  std::byte* base = Head(layer, block, head) + key_bytes();
  for (std::int32_t dim = 0; dim < geometry_.v_dim; ++dim) {
    Store(geometry_.v_dtype, value[dim], base, std::int64_t{slot} * geometry_.v_dim + dim);
  }
}

float ReferenceKvCache::Key(std::int32_t layer, std::int64_t block, std::int32_t head,
                            std::int32_t slot, std::int32_t dim) const {
  return Load(geometry_.k_dtype, Head(layer, block, head),
              std::int64_t{slot} * geometry_.k_dim + dim);
}

float ReferenceKvCache::Value(std::int32_t layer, std::int64_t block, std::int32_t head,
                              std::int32_t slot, std::int32_t dim) const {
  return Load(geometry_.v_dtype, Head(layer, block, head) + key_bytes(),
              std::int64_t{slot} * geometry_.v_dim + dim);
}

void ReferenceKvCache::CopyBlock(const BlockCopy& copy) {
  for (std::int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    std::memcpy(Head(layer, copy.target, 0), Head(layer, copy.source, 0),
                static_cast<std::size_t>(geometry_.layer_block_bytes()));
  }
}

}  // namespace quire::kernels::reference
