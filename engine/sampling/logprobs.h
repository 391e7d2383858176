// Log-probabilities of one position, as they are reported.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace quire::engine::sampling {

struct RankedLogprob {
  TokenId token = -1;
  float logprob = 0;
  std::int32_t rank =
      0;  // Vocabulary entries with a log-probability >= this one's; the best has 1.
};

struct PositionLogprobs {
  RankedLogprob chosen;            // token -1 at prompt position 0, which nothing predicts.
  std::vector<RankedLogprob> top;  // As many as asked for, best first, ties by lowest id.
};

}  // namespace quire::engine::sampling
