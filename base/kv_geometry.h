// The only byte accounting of the KV cache in the project: plan tool, start-up table, engine and
// metrics all ask here.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace quire {

// Element type of cached keys or values.
enum class KvDtype { kF32, kF16, kBf16 };

int KvElementBytes(KvDtype dtype);
std::string_view KvDtypeName(KvDtype dtype);  // "f32", "f16", "bf16"

// Shape of the cache of one model. A slot holds one token's K and V of every layer and KV head; a
// block is `block_size` slots.
struct KvGeometry {
  int num_layers = 0;
  int num_kv_heads = 0;
  int k_dim = 0;  // Elements per key of one head.
  int v_dim = 0;  // Elements per value of one head.
  int block_size = 0;
  KvDtype k_dtype = KvDtype::kF16;
  KvDtype v_dtype = KvDtype::kF16;

  // Every field positive and within sane limits, block_size a power of two in [1, 256].
  absl::Status Validate() const;

  // 2 * layers * kv_heads * head_dim * element bytes, when K and V agree.
  std::int64_t bytes_per_token() const;
  std::int64_t bytes_per_block() const { return bytes_per_token() * block_size; }
  // Bytes of one block in one layer.
  std::int64_t layer_block_bytes() const { return bytes_per_block() / num_layers; }
  // Blocks that hold `num_tokens` tokens, rounded up.
  std::int64_t blocks_for_tokens(std::int64_t num_tokens) const {
    return (num_tokens + block_size - 1) / block_size;
  }
};

}  // namespace quire
