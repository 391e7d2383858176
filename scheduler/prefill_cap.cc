#include "scheduler/prefill_cap.h"

#include <algorithm>

namespace quire::scheduler {

PrefillCap::PrefillCap(absl::Duration target, std::int32_t block_size, std::int32_t max_tokens)
    : target_(target),
      min_tokens_(std::min(block_size, max_tokens)),
      max_tokens_(max_tokens),
      tokens_(max_tokens) {}

void PrefillCap::StepTook(absl::Duration duration, std::int32_t num_prefill_tokens) {
  if (target_ <= absl::ZeroDuration() || num_prefill_tokens == 0) return;
  if (duration <= absl::ZeroDuration()) return;
  const double fitting = num_prefill_tokens * kAim * absl::FDivDuration(target_, duration);
  if (fitting < tokens_) {
    // A smaller step than allowed tells nothing against the cap unless it was itself too long.
    if (fitting < num_prefill_tokens) tokens_ = fitting;
  } else if (num_prefill_tokens >= tokens()) {
    tokens_ += kRaise * (fitting - tokens_);
  }
  tokens_ = std::clamp(tokens_, min_tokens_, max_tokens_);
}

}  // namespace quire::scheduler
