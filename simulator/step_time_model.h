// How long a step takes: linear in what it computes. Given, or fitted to measured steps.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace quire::simulator {

// What one step computes. A sequence that computes one token decodes; one that computes more
// prefills.
struct StepWork {
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_sequences = 0;
  std::int64_t context_tokens =
      0;                           // Whose K and V are read: each sequence's length after the step.
  std::int64_t num_sequences = 0;  // No part of the model's time.

  void Add(std::int64_t first_token, std::int64_t num_tokens) {
    (num_tokens == 1 ? decode_sequences : prefill_tokens) += num_tokens;
    context_tokens += first_token + num_tokens;
    ++num_sequences;
  }
  std::int64_t num_tokens() const { return prefill_tokens + decode_sequences; }
  bool empty() const { return num_sequences == 0; }
};

struct MeasuredStep {
  StepWork work;
  double seconds = 0;
};

struct StepTimeModel {
  double fixed_s = 0;
  double per_prefill_token_s = 0;
  double per_decode_sequence_s = 0;
  double per_context_token_s = 0;

  double Seconds(const StepWork& work) const {
    return fixed_s + per_prefill_token_s * static_cast<double>(work.prefill_tokens) +
           per_decode_sequence_s * static_cast<double>(work.decode_sequences) +
           per_context_token_s * static_cast<double>(work.context_tokens);
  }
  absl::Duration Of(const StepWork& work) const { return absl::Seconds(Seconds(work)); }

  // No negative or absurd coefficient, and no step takes no time.
  absl::Status Validate() const;

  // OPT-13B in 16 bits on one A100 with 40 GB, from the hardware: weights (25.7 GB) and K/V (800
  // KiB a token) are read at 1.2 TB/s of the 1.555 TB/s, products run at half of 312 TFLOP/s, and a
  // sequence costs 50 us of sampling and bookkeeping.
  static StepTimeModel Opt13bOnA100();

  // The least-squares fit whose coefficients are all at least 0 (exact: the best one over all
  // subsets of coefficients). FAILED_PRECONDITION when the steps do not determine it.
  static absl::StatusOr<StepTimeModel> Fit(std::span<const MeasuredStep> steps);
};

// One JSON object a line: {"prefill_tokens", "decode_sequences", "context_tokens", "seconds"}.
// Errors name the line and the field.
absl::StatusOr<std::vector<MeasuredStep>> ParseMeasuredSteps(std::string_view jsonl);

}  // namespace quire::simulator
