#include "engine/sampling/logprobs.h"

#include <algorithm>

namespace quire::engine::sampling {

PositionLogprobs ToPositionLogprobs(const kernels::SampleResult& result) {
  PositionLogprobs position;
  position.chosen = {.token = result.token, .logprob = result.logprob, .rank = result.rank};
  position.top.resize(result.top.size());
  // Backwards, so that the last of each tie gives its rank to those before it.
  std::int32_t rank = result.last_rank;
  for (std::size_t i = result.top.size(); i-- > 0;) {
    const kernels::TokenLogprob& entry = result.top[i];
    const bool is_last = i + 1 == result.top.size();
    const bool ties_with_next = !is_last && result.top[i + 1].logprob == entry.logprob;
    if (!is_last && !ties_with_next) rank = static_cast<std::int32_t>(i) + 1;
    position.top[i] = {.token = entry.token, .logprob = entry.logprob, .rank = rank};
  }
  return position;
}

kernels::SampleRow PromptLogprobsRow(TokenId token, std::int32_t num_logprobs,
                                     std::int32_t vocab_size) {
  kernels::SampleRow row;
  row.forced_token = token;
  row.num_logprobs = num_logprobs < 0 ? vocab_size : std::min(num_logprobs, vocab_size);
  return row;
}

}  // namespace quire::engine::sampling
