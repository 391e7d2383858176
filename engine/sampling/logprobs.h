// Log-probabilities of one position, as they are reported.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kernels/sample.h"

namespace quire::engine::sampling {

struct RankedLogprob {
  TokenId token = -1;
  float logprob = 0;
  // Vocabulary entries with a log-probability >= this one's; the best has 1.
  std::int32_t rank = 0;
};

struct PositionLogprobs {
  RankedLogprob chosen;            // token -1 at prompt position 0, which nothing predicts.
  std::vector<RankedLogprob> top;  // As many as asked for, best first, ties by lowest id.
};

// What the sampler found at one position (result.ok, num_logprobs >= 0), with ranks. The chosen
// token is always reported, so k alternatives make k + 1 entries, one of them twice when the chosen
// token is among the best k.
PositionLogprobs ToPositionLogprobs(const kernels::SampleResult& result);

// The row that scores prompt token `token` and the best `num_logprobs` (-1: all `vocab_size`) at
// the position before it.
kernels::SampleRow PromptLogprobsRow(TokenId token, std::int32_t num_logprobs,
                                     std::int32_t vocab_size);

}  // namespace quire::engine::sampling
