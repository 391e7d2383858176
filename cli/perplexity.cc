#include "cli/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace quire::cli {

std::vector<v1::GenerateRequest> WindowRequests(std::span<const TokenId> ids, std::size_t context) {
  std::vector<v1::GenerateRequest> requests;
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += context) {
    const auto window = ids.subspan(begin, std::min(context, ids.size() - begin));
    if (window.size() < 2) continue;
    v1::GenerateRequest& request = requests.emplace_back();
    request.mutable_token_ids()->mutable_ids()->Assign(window.begin(), window.end() - 1);
    request.set_bypass_prefix_cache(true);
    v1::SamplingParams* sampling = request.mutable_sampling();
    sampling->set_prompt_logprobs(0);
    // The window's last token is the answer, the only one allowed; log-probabilities are those
    // before that restriction.
    sampling->add_allowed_token_ids(window.back());
    sampling->set_logprobs(0);
    sampling->set_max_tokens(1);
    sampling->set_ignore_eos(true);
    sampling->set_temperature(0);
    sampling->set_detokenize(false);
  }
  return requests;
}

absl::Status PerplexitySum::Add(const v1::GenerateUnaryResponse& answer) {
  for (int i = 1; i < answer.prompt_logprobs_size(); ++i) {
    QUIRE_RETURN_IF_ERROR(Add(answer.prompt_logprobs(i)));
  }
  if (answer.completions_size() != 1 || answer.completions(0).logprobs_size() != 1) {
    return Internal("the window's last token has no log-probability");
  }
  return Add(answer.completions(0).logprobs(0));
}

absl::Status PerplexitySum::Add(const v1::PositionLogprobs& position) {
  if (!position.has_chosen())
    return Internal("predicted token {} has no log-probability", predicted_);
  sum_nll_ -= double{position.chosen().logprob()};
  ++predicted_;
  return absl::OkStatus();
}

double PerplexitySum::mean_nll() const {
  return predicted_ == 0 ? 0 : sum_nll_ / static_cast<double>(predicted_);
}

double PerplexitySum::perplexity() const { return std::exp(mean_nll()); }

}  // namespace quire::cli
