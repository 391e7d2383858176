#include "base/status.h"
#include "scheduler/scheduler.h"

namespace quire::scheduler {

absl::Status SchedulerOptions::Validate() const {
  constexpr std::int32_t kMaxSequences = 1 << 16;
  constexpr std::int32_t kMaxTokens = 1 << 24;
  if (max_num_seqs < 1 || max_num_seqs > kMaxSequences) {
    return InvalidArgument("--max-num-seqs must be in [1, {}], got {}", kMaxSequences,
                           max_num_seqs);
  }
  if (max_num_batched_tokens < max_num_seqs || max_num_batched_tokens > kMaxTokens) {
    return InvalidArgument(
        "--max-num-batched-tokens must be in [--max-num-seqs, {}] = [{}, {}] so that every "
        "sequence "
        "can decode in every step, got {}",
        kMaxTokens, max_num_seqs, kMaxTokens, max_num_batched_tokens);
  }
  if (max_prefill_tokens < 1) {
    return InvalidArgument("--max-prefill-tokens must be at least 1, got {}", max_prefill_tokens);
  }
  if (max_model_len < 2) {
    return InvalidArgument("--max-model-len must be at least 2, got {}", max_model_len);
  }
  // Written so that NaN is refused.
  if (!(watermark >= 0.0 && watermark < 1.0)) {
    return InvalidArgument("watermark must be in [0, 1), got {}", watermark);
  }
  if (max_overtakes < 0) {
    return InvalidArgument("max-overtakes must be at least 0, got {}", max_overtakes);
  }
  if (max_in_flight_steps < 0) {
    return InvalidArgument("--max-in-flight-steps must be at least 0, got {}", max_in_flight_steps);
  }
  if (client_quantum < 0) {
    return InvalidArgument("--client-quantum must be at least 0, got {}", client_quantum);
  }
  if (target_itl < absl::ZeroDuration()) {
    return InvalidArgument("--target-itl-ms must be at least 0, got {}",
                           absl::ToDoubleMilliseconds(target_itl));
  }
  if (sliding_window < 0) {
    return InvalidArgument("the sliding window must be at least 0, got {}", sliding_window);
  }
  return absl::OkStatus();
}

}  // namespace quire::scheduler
