#include "base/kv_geometry.h"

#include <bit>

#include "base/status.h"

namespace quire {

int KvElementBytes(KvDtype dtype) { return dtype == KvDtype::kF32 ? 4 : 2; }

std::string_view KvDtypeName(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kF32:
      return "f32";
    case KvDtype::kF16:
      return "f16";
    case KvDtype::kBf16:
      return "bf16";
  }
  return "unknown";
}

absl::Status KvGeometry::Validate() const {
  const auto in_range = [](std::string_view name, int value, int max) -> absl::Status {
    if (value >= 1 && value <= max) return absl::OkStatus();
    return InvalidArgument("{} must be in [1, {}], got {}", name, max, value);
  };
  QUIRE_RETURN_IF_ERROR(in_range("num_layers", num_layers, 10'000));
  QUIRE_RETURN_IF_ERROR(in_range("num_kv_heads", num_kv_heads, 100'000));
  QUIRE_RETURN_IF_ERROR(in_range("k_dim", k_dim, 65'536));
  QUIRE_RETURN_IF_ERROR(in_range("v_dim", v_dim, 65'536));
  QUIRE_RETURN_IF_ERROR(in_range("block_size", block_size, 256));
  if (!std::has_single_bit(static_cast<unsigned>(block_size))) {
    return InvalidArgument("block_size must be a power of two, got {}", block_size);
  }
  return absl::OkStatus();
}

std::int64_t KvGeometry::bytes_per_token() const {
  const std::int64_t per_head =
      std::int64_t{k_dim} * KvElementBytes(k_dtype) + std::int64_t{v_dim} * KvElementBytes(v_dtype);
  return per_head * num_kv_heads * num_layers;
}

}  // namespace quire
