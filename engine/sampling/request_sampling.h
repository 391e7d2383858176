// A request's sampling parameters, made ready for the engine loop: ids sorted and checked, bad
// words tokenised, masks built. Shared by all branches of the request.
//
// Thread: immutable after Create, which may run on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "engine/sampling/sampling_params.h"
#include "engine/text/tokenizer.h"
#include "kernels/sample.h"

namespace quire::engine::sampling {

// Why a branch ends with the token it has just produced.
enum class FinishCause {
  kNone,
  kEos,          // One of the model's end-of-sequence ids.
  kStopToken,    // One of the request's stop_token_ids.
  kMaxTokens,    // max_tokens are produced.
  kMaxModelLen,  // Prompt and output fill the context.
};

// What sampling needs to know about the model.
struct SamplingModel {
  std::int32_t vocab_size = 0;
  std::int32_t max_model_len = 0;
  std::vector<TokenId> eos_token_ids;
};

class RequestSampling {
 public:
  // `params` are resolved and valid for the model; `seed` is theirs or the one drawn. `prompt` is
  // what will be computed (after truncation). `tokenizer` may be null; bad_words are then refused.
  // INVALID_ARGUMENT, naming the field, also when bad words have too many tokens and when the
  // fields together leave no token that may be chosen.
  static absl::StatusOr<std::shared_ptr<const RequestSampling>> Create(
      SamplingParams params, std::uint64_t seed, std::span<const TokenId> prompt,
      const SamplingModel& model, const text::Tokenizer* tokenizer);

  const SamplingParams& params() const { return params_; }
  std::uint64_t seed() const { return seed_; }

  // What is the same for every position and branch. Spans point into this object.
  const kernels::SampleRow& base_row() const { return base_row_; }
  bool uses_output_counts() const;

  // Ids that end a branch; not to be chosen before min_tokens are produced.
  std::span<const TokenId> stop_ids() const { return stop_ids_; }
  // Sequences of ids whose last one may not be chosen after the others.
  std::span<const std::vector<TokenId>> bad_word_ids() const { return bad_word_ids_; }
  std::int32_t longest_bad_word() const { return longest_bad_word_; }  // In tokens.

  // Whether a branch ends with `token`, the `num_output`th of its output (from 1). End-of-sequence
  // and stop ids count only after min_tokens; the length limits always do. A token that stops and
  // also reaches a limit stops.
  FinishCause CheckFinish(TokenId token, std::int32_t num_output) const;

 private:
  RequestSampling(SamplingParams params, std::uint64_t seed, std::span<const TokenId> prompt,
                  const SamplingModel& model);
  absl::Status TokenizeBadWords(const text::Tokenizer* tokenizer);
  absl::Status CheckSomethingMayBeChosen(std::int32_t vocab_size) const;

  SamplingParams params_;
  std::uint64_t seed_;
  std::int32_t prompt_length_;
  std::int32_t max_model_len_;
  std::vector<TokenId> eos_ids_;        // Sorted; empty with ignore_eos.
  std::vector<TokenId> stop_ids_;       // Sorted, with eos_ids_.
  std::vector<TokenId> prompt_tokens_;  // Distinct, sorted; empty without repetition penalty.
  std::vector<kernels::TokenBias> bias_;
  std::vector<std::uint64_t> allowed_;
  std::vector<std::vector<TokenId>> bad_word_ids_;
  std::int32_t longest_bad_word_ = 0;
  kernels::SampleRow base_row_;
};

}  // namespace quire::engine::sampling
