#include "kernels/reference/reference_kv_cache.h"

#include <cstring>

#include "base/check.h"
#include "kernels/math.h"

namespace quire::kernels::reference {
namespace {

void Store(KvDtype dtype, std::span<const float> values, std::byte* out) {
  for (const float value : values) {
    if (dtype == KvDtype::kF32) {
      std::memcpy(out, &value, 4);
      out += 4;
      continue;
    }
    const std::uint16_t bits = dtype == KvDtype::kF16 ? F32ToF16(value) : F32ToBf16(value);
    std::memcpy(out, &bits, 2);
    out += 2;
  }
}

void Load(KvDtype dtype, const std::byte* in, std::span<float> values) {
  for (float& value : values) {
    if (dtype == KvDtype::kF32) {
      std::memcpy(&value, in, 4);
      in += 4;
      continue;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, in, 2);
    in += 2;
    value = dtype == KvDtype::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
  }
}

}  // namespace

std::byte* ReferenceKvCache::Key(std::int32_t layer, std::int64_t block, std::int32_t head,
                                 std::int32_t slot) const {
  QUIRE_DCHECK(block >= 0 && block < num_blocks_) << block;
  const std::int64_t layer_bytes = geometry_.layer_block_bytes();
  const std::int64_t head_bytes = layer_bytes / geometry_.num_kv_heads;
  const std::int64_t key_bytes = std::int64_t{geometry_.k_dim} * KvElementBytes(geometry_.k_dtype);
  return memory_.data() + (layer * num_blocks_ + block) * layer_bytes + head * head_bytes +
         slot * key_bytes;
}

std::byte* ReferenceKvCache::Value(std::int32_t layer, std::int64_t block, std::int32_t head,
                                   std::int32_t slot) const {
  const std::int64_t value_bytes =
      std::int64_t{geometry_.v_dim} * KvElementBytes(geometry_.v_dtype);
  return Key(layer, block, head, geometry_.block_size) + slot * value_bytes;
}

void ReferenceKvCache::WriteKey(std::int32_t layer, std::int64_t block, std::int32_t head,
                                std::int32_t slot, std::span<const float> key) {
  Store(geometry_.k_dtype, key, Key(layer, block, head, slot));
}

void ReferenceKvCache::WriteValue(std::int32_t layer, std::int64_t block, std::int32_t head,
                                  std::int32_t slot, std::span<const float> value) {
  Store(geometry_.v_dtype, value, Value(layer, block, head, slot));
}

void ReferenceKvCache::ReadKey(std::int32_t layer, std::int64_t block, std::int32_t head,
                               std::int32_t slot, std::span<float> key) const {
  Load(geometry_.k_dtype, Key(layer, block, head, slot), key);
}

void ReferenceKvCache::ReadValue(std::int32_t layer, std::int64_t block, std::int32_t head,
                                 std::int32_t slot, std::span<float> value) const {
  Load(geometry_.v_dtype, Value(layer, block, head, slot), value);
}

void ReferenceKvCache::CopyBlock(const BlockCopy& copy) {
  for (std::int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    std::memcpy(Key(layer, copy.target, 0, 0), Key(layer, copy.source, 0, 0),
                static_cast<std::size_t>(geometry_.layer_block_bytes()));
  }
}

}  // namespace quire::kernels::reference
