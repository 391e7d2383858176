#include "kernels/cpu/kv_cache.h"

#include <algorithm>
#include <limits>

#include "base/status.h"

namespace quire::kernels::cpu {
namespace {

KvElement ElementOf(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kF32:
      return KvElement::kF32;
    case KvDtype::kF16:
      return KvElement::kF16;
    case KvDtype::kBf16:
      return KvElement::kBf16;
  }
  return KvElement::kF32;
}

}  // namespace

absl::StatusOr<std::int64_t> KvCacheBytes(const KvGeometry& geometry, std::int64_t num_blocks) {
  QUIRE_RETURN_IF_ERROR(geometry.Validate());
  if (num_blocks < 0) return InvalidArgument("num_blocks must not be negative: {}", num_blocks);
  const std::int64_t block_bytes = geometry.bytes_per_block();
  // Block ids are 32 bits wide.
  if (num_blocks > std::numeric_limits<std::int32_t>::max() ||
      num_blocks > std::numeric_limits<std::int64_t>::max() / block_bytes) {
    return ResourceExhausted("{} blocks of {} bytes are more than can be addressed", num_blocks,
                             block_bytes);
  }
  return num_blocks * block_bytes;
}

absl::StatusOr<std::unique_ptr<CpuKvCache>> CpuKvCache::Create(const KvGeometry& geometry,
                                                               std::int64_t num_blocks) {
  QUIRE_ASSIGN_OR_RETURN(const std::int64_t bytes, KvCacheBytes(geometry, num_blocks));
  QUIRE_ASSIGN_OR_RETURN(AlignedBuffer memory,
                         AlignedBuffer::Allocate(static_cast<std::size_t>(bytes)));
  return std::unique_ptr<CpuKvCache>(new CpuKvCache(geometry, num_blocks, std::move(memory)));
}

KvHeadView CpuKvCache::Head(std::int32_t layer, std::int32_t head) const {
  const std::int64_t tokens = std::min(geometry_.block_size, kKeyGroup);
  const std::int64_t key_bytes = tokens * geometry_.k_dim * KvElementBytes(geometry_.k_dtype);
  const std::int64_t value_bytes = tokens * geometry_.v_dim * KvElementBytes(geometry_.v_dtype);
  return {.base = Block(layer, 0) + head * head_bytes(),
          .block_stride = geometry_.layer_block_bytes(),
          .group_stride = key_bytes + value_bytes,
          .value_offset = key_bytes,
          .k_dim = geometry_.k_dim,
          .v_dim = geometry_.v_dim,
          .block_size = geometry_.block_size,
          .k_element = ElementOf(geometry_.k_dtype),
          .v_element = ElementOf(geometry_.v_dtype)};
}

}  // namespace quire::kernels::cpu
