#include "engine/sampling/request_sampling.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/status.h"

namespace quire::engine::sampling {
namespace {

constexpr double kMinTemperature = 0.01;  // Smaller ones make f32 logits overflow.
constexpr double kMaxBias = 100;

void SortAndDeduplicate(std::vector<TokenId>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

bool Contains(const std::vector<TokenId>& sorted, TokenId id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

std::vector<std::uint64_t> MaskOf(std::span<const TokenId> ids, std::int32_t vocab_size) {
  std::vector<std::uint64_t> mask((static_cast<std::size_t>(vocab_size) + 63) / 64, 0);
  for (const TokenId id : ids)
    mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << id % 64;
  return mask;
}

// The fields that are plain numbers. Greedy overrides the filters, as in vLLM.
kernels::SampleRow RowOf(const SamplingParams& params, std::int32_t vocab_size) {
  kernels::SampleRow row;
  if (!params.IsGreedy()) {
    row.temperature = static_cast<float>(std::max(params.temperature.value_or(1), kMinTemperature));
    row.top_k = std::max(params.top_k.value_or(0), 0);
    row.top_p = static_cast<float>(params.top_p.value_or(1));
    row.min_p = static_cast<float>(params.min_p.value_or(0));
  }
  row.repetition_penalty = static_cast<float>(params.repetition_penalty.value_or(1));
  row.frequency_penalty = static_cast<float>(params.frequency_penalty);
  row.presence_penalty = static_cast<float>(params.presence_penalty);
  if (params.logprobs) {
    row.num_logprobs = *params.logprobs < 0 ? vocab_size : std::min(*params.logprobs, vocab_size);
  }
  return row;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RequestSampling>> RequestSampling::Create(
    SamplingParams params, std::uint64_t seed, std::span<const TokenId> prompt,
    const SamplingModel& model, const text::Tokenizer* tokenizer) {
  std::shared_ptr<RequestSampling> request(
      new RequestSampling(std::move(params), seed, prompt, model));
  QUIRE_RETURN_IF_ERROR(request->TokenizeBadWords(tokenizer));
  QUIRE_RETURN_IF_ERROR(request->CheckSomethingMayBeChosen(model.vocab_size));
  return request;
}

RequestSampling::RequestSampling(SamplingParams params, std::uint64_t seed,
                                 std::span<const TokenId> prompt, const SamplingModel& model)
    : params_(std::move(params)),
      seed_(seed),
      prompt_length_(static_cast<std::int32_t>(prompt.size())),
      max_model_len_(model.max_model_len),
      base_row_(RowOf(params_, model.vocab_size)) {
  if (!params_.ignore_eos) {
    for (const TokenId id : model.eos_token_ids) {
      if (id >= 0 && id < model.vocab_size) eos_ids_.push_back(id);
    }
  }
  SortAndDeduplicate(eos_ids_);
  stop_ids_ = eos_ids_;
  stop_ids_.insert(stop_ids_.end(), params_.stop_token_ids.begin(), params_.stop_token_ids.end());
  SortAndDeduplicate(stop_ids_);

  if (base_row_.repetition_penalty != 1) {
    prompt_tokens_.assign(prompt.begin(), prompt.end());
    SortAndDeduplicate(prompt_tokens_);
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    bias_.push_back({token, static_cast<float>(std::clamp(bias, -kMaxBias, kMaxBias))});
  }
  if (!params_.allowed_token_ids.empty()) {
    allowed_ = MaskOf(params_.allowed_token_ids, model.vocab_size);
  }
  base_row_.prompt_tokens = prompt_tokens_;
  base_row_.bias = bias_;
  base_row_.allowed = allowed_;
}

absl::Status RequestSampling::TokenizeBadWords(const text::Tokenizer* tokenizer) {
  if (params_.bad_words.empty()) return absl::OkStatus();
  if (tokenizer == nullptr) return InvalidArgument("bad_words: the model has no tokenizer");
  std::size_t num_tokens = 0;
  for (std::size_t i = 0; i < params_.bad_words.size(); ++i) {
    const std::string& written = params_.bad_words[i];
    const std::string word =
        written.substr(std::min(written.find_first_not_of(' '), written.size()));
    // Inside a sentence a word has other ids than at its beginning.
    for (const std::string& form : {word, " " + word}) {
      absl::StatusOr<std::vector<TokenId>> ids = tokenizer->Encode(form, {});
      if (!ids.ok()) return InvalidArgument("bad_words[{}]: {}", i, AsStd(ids.status().message()));
      if (ids->empty()) return InvalidArgument("bad_words[{}] has no tokens", i);
      num_tokens += ids->size();
      longest_bad_word_ = std::max(longest_bad_word_, static_cast<std::int32_t>(ids->size()));
      bad_word_ids_.push_back(*std::move(ids));
    }
  }
  if (num_tokens > kMaxBadWordTokens) {
    return InvalidArgument(
        "bad_words have {} tokens with and without a space before them, more than {}", num_tokens,
        kMaxBadWordTokens);
  }
  return absl::OkStatus();
}

absl::Status RequestSampling::CheckSomethingMayBeChosen(std::int32_t vocab_size) const {
  std::vector<TokenId> never;
  if (params_.min_tokens > 0) never = stop_ids_;
  for (const std::vector<TokenId>& ids : bad_word_ids_) {
    if (ids.size() == 1) never.push_back(ids.front());
  }
  SortAndDeduplicate(never);
  for (TokenId id = 0; id < vocab_size; ++id) {
    const bool is_allowed =
        allowed_.empty() || (allowed_[static_cast<std::size_t>(id) / 64] >> id % 64 & 1) != 0;
    if (is_allowed && !Contains(never, id)) return absl::OkStatus();
  }
  return InvalidArgument(
      "allowed_token_ids, bad_words, min_tokens and the stop ids leave no token that may be "
      "chosen");
}

bool RequestSampling::uses_output_counts() const {
  return base_row_.repetition_penalty != 1 || base_row_.frequency_penalty != 0 ||
         base_row_.presence_penalty != 0;
}

FinishCause RequestSampling::CheckFinish(TokenId token, std::int32_t num_output) const {
  if (num_output > params_.min_tokens) {
    if (Contains(eos_ids_, token)) return FinishCause::kEos;
    if (Contains(stop_ids_, token)) return FinishCause::kStopToken;
  }
  if (params_.max_tokens && num_output >= *params_.max_tokens) return FinishCause::kMaxTokens;
  if (prompt_length_ + num_output >= max_model_len_) return FinishCause::kMaxModelLen;
  return FinishCause::kNone;
}

}  // namespace quire::engine::sampling
