// A Llama forward pass as one would write it on paper: no cache, no batching, double precision,
// nothing shared with engine/ or kernels/ but names. The oracle for decoder tests.
#pragma once

#include <vector>

#include "base/ids.h"
#include "tests/fakes/toy_model.h"

namespace quire::fakes {

// Logits of every position of `ids`. [ids.size()][vocab]
std::vector<std::vector<double>> PlainLlamaLogits(ToyModel& toy, const std::vector<TokenId>& ids);

}  // namespace quire::fakes
