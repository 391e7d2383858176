// Perplexity of a text under a model: exp of the mean negative log-likelihood per predicted token.
// The text is cut into windows that do not overlap; each starts from an empty context, and its
// first token is not predicted. A shorter last window counts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "quire/v1/generation.pb.h"

namespace quire::cli {

// The requests that score the windows of `ids`: all of a window but its last token is the prompt,
// with log-probabilities, and the last is the only answer allowed, so that a window may be as long
// as the context. A last window of one token predicts nothing and is left out.
std::vector<v1::GenerateRequest> WindowRequests(std::span<const TokenId> ids, std::size_t context);

class PerplexitySum {
 public:
  // Adds a scored window. INTERNAL when a position has no log-probability.
  absl::Status Add(const v1::GenerateUnaryResponse& answer);

  std::int64_t predicted() const { return predicted_; }
  double mean_nll() const;  // In nats.
  double perplexity() const;

 private:
  absl::Status Add(const v1::PositionLogprobs& position);

  double sum_nll_ = 0;
  std::int64_t predicted_ = 0;
};

}  // namespace quire::cli
