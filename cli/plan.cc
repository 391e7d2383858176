#include "cli/plan.h"

#include <array>

#include "base/status.h"

namespace quire::cli {

std::span<const Architecture> Architectures() {
  static const std::array<Architecture, 5> architectures = {{
      {"smollm2-135m", 30, 3, 64, 134.5e6},
      {"llama-2-7b", 32, 32, 128, 6.7e9},
      {"llama-3-8b", 32, 8, 128, 8.0e9},
      {"gpt-3-175b", 96, 96, 128, 175e9},
      // PaLM 540B with multi-head attention at half the head width, so that its parameters stay the
      // same (Pope et al. 2022, section 4.2).
      {"palm-540b-mha", 118, 48, 128, 540e9},
  }};
  return architectures;
}

absl::StatusOr<KvPlan> PlanKv(const KvGeometry& geometry, std::int64_t tokens, std::int64_t batch) {
  QUIRE_RETURN_IF_ERROR(geometry.Validate());
  if (tokens < 1 || batch < 1) return InvalidArgument("--tokens and --batch must be at least 1");
  KvPlan plan{.bytes_per_token = geometry.bytes_per_token(),
              .bytes_per_block = geometry.bytes_per_block()};
  plan.blocks_per_sequence = tokens / geometry.block_size + (tokens % geometry.block_size != 0);
  std::int64_t slots = 0;
  if (__builtin_mul_overflow(tokens, batch, &slots) ||
      __builtin_mul_overflow(slots, plan.bytes_per_token, &plan.total_bytes) ||
      __builtin_mul_overflow(plan.blocks_per_sequence, batch, &plan.num_blocks) ||
      __builtin_mul_overflow(plan.num_blocks, plan.bytes_per_block, &plan.pool_bytes)) {
    return InvalidArgument("{} tokens x {} sequences need more than 2^63 bytes", tokens, batch);
  }
  return plan;
}

}  // namespace quire::cli
