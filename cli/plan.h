// How much memory KV blocks take, for a model or for given dimensions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/kv_geometry.h"

namespace quire::cli {

// Published dimensions of models that papers reason about.
struct Architecture {
  std::string name;
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  double num_parameters = 0;
};
std::span<const Architecture> Architectures();

struct KvPlan {
  std::int64_t bytes_per_token = 0;
  std::int64_t bytes_per_block = 0;
  std::int64_t total_bytes = 0;  // Of exactly tokens * batch slots.
  std::int64_t blocks_per_sequence = 0;
  std::int64_t num_blocks = 0;  // Of all sequences.
  std::int64_t pool_bytes = 0;  // Of those blocks: total_bytes and the last blocks' rest.
};

// 2 * layers * kv_heads * head_dim * element bytes * tokens * batch. INVALID_ARGUMENT for an
// invalid geometry, numbers below 1, or a result beyond 2^63.
absl::StatusOr<KvPlan> PlanKv(const KvGeometry& geometry, std::int64_t tokens, std::int64_t batch);

}  // namespace quire::cli
