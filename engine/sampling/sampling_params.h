// How a request wants its tokens chosen. Names, meanings and defaults are vLLM's, except that an
// unset max_tokens fills the context.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace quire::engine::sampling {

// Bounds that Validate enforces on what a request may carry.
inline constexpr std::int32_t kMaxBranches = 16384;
inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopStringBytes = 1024;
inline constexpr std::size_t kMaxStopTokenIds = 1024;
inline constexpr std::size_t kMaxBadWords = 128;
inline constexpr std::size_t kMaxBadWordBytes = 1024;
inline constexpr std::size_t kMaxBadWordTokens = 1024;  // All of a request's bad words together.

// Temperatures below this are arg-max.
inline constexpr double kGreedyBelow = 1e-5;

struct SamplingParams {
  std::int32_t n = 1;
  // Unset: the model's default, else 1. Below 1e-5: greedy.
  std::optional<double> temperature = std::nullopt;
  std::optional<double> top_p = std::nullopt;
  std::optional<std::int32_t> top_k = std::nullopt;  // 0 and -1: all.
  std::optional<double> min_p = std::nullopt;
  std::optional<double> repetition_penalty = std::nullopt;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  // Unset: drawn, and returned with the last message.
  std::optional<std::uint64_t> seed = std::nullopt;
  std::map<TokenId, double> logit_bias = {};
  std::vector<TokenId> allowed_token_ids = {};  // Empty: all.
  std::vector<std::string> bad_words = {};

  std::optional<std::int32_t> max_tokens = std::nullopt;
  std::int32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop = {};
  std::vector<TokenId> stop_token_ids = {};
  bool include_stop_str_in_output = false;

  std::optional<std::int32_t> logprobs = std::nullopt;  // -1: the whole vocabulary.
  std::optional<std::int32_t> prompt_logprobs = std::nullopt;
  // Keep the last k; -1: what the context holds.
  std::optional<std::int32_t> truncate_prompt_tokens = std::nullopt;
  bool detokenize = true;
  bool skip_special_tokens = true;

  bool IsGreedy() const;  // False while temperature is unset.

  // INVALID_ARGUMENT naming the first offending field (and its value) for anything out of range,
  // NaN or infinite, contradictory, or outside a vocabulary of `vocab_size`. Unset fields pass:
  // call it on resolved parameters.
  absl::Status Validate(std::int32_t vocab_size) const;
};

// A model's own defaults (generation_config.json or GGUF keys).
struct SamplingDefaults {
  std::optional<double> temperature = std::nullopt;
  std::optional<double> top_p = std::nullopt;
  std::optional<double> min_p = std::nullopt;
  std::optional<double> repetition_penalty = std::nullopt;
  std::optional<std::int32_t> top_k = std::nullopt;
};

// `params` with every unset field filled from `defaults`, then from vLLM's.
SamplingParams Resolve(SamplingParams params, const SamplingDefaults& defaults);

}  // namespace quire::engine::sampling
