// How many prefill tokens a step that also decodes may hold, so that the tokens of running streams
// come no further apart than a target time: learned from how long steps took.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace quire::scheduler {

// A step's time grows about linearly with its prefill tokens, from a part that the decodes take by
// themselves. Scaling the tokens of a step by aim / (its time) then converges to the step that
// takes just `aim`, wherever it starts and whatever that part is; no model is fitted. A step that
// took too long lowers the cap at once, quicker ones raise it slowly.
//
// A deterministic function of what it is told. Bounds: [min(block_size, max_tokens), max_tokens].
class PrefillCap {
 public:
  // A target of zero switches it off: the cap is then always `max_tokens`.
  PrefillCap(absl::Duration target, std::int32_t block_size, std::int32_t max_tokens);

  std::int32_t tokens() const { return static_cast<std::int32_t>(tokens_); }

  // A step with decodes and this many prefill tokens took `duration`.
  void StepTook(absl::Duration duration, std::int32_t num_prefill_tokens);

 private:
  // Aims below the target, so that ordinary noise stays under it.
  static constexpr double kAim = 0.9;
  static constexpr double kRaise = 0.25;  // The part of a rise that one step may bring.

  const absl::Duration target_;
  const double min_tokens_;
  const double max_tokens_;
  double tokens_;
};

}  // namespace quire::scheduler
