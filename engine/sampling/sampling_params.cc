#include "engine/sampling/sampling_params.h"

#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "base/status.h"
#include "engine/text/utf8.h"

namespace quire::engine::sampling {
namespace {

// NaN fails both comparisons.
absl::Status CheckRange(std::string_view field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("{} must be in [{}, {}], got {}", field, low, high, value);
}

absl::Status CheckRange(std::string_view field, const std::optional<double>& value, double low,
                        double high) {
  return value ? CheckRange(field, *value, low, high) : absl::OkStatus();
}

absl::Status CheckAtLeast(std::string_view field, const std::optional<std::int32_t>& value,
                          std::int32_t low) {
  if (!value || *value >= low) return absl::OkStatus();
  return InvalidArgument("{} must be at least {}, got {}", field, low, *value);
}

absl::Status CheckCount(std::string_view field, std::size_t count, std::size_t limit) {
  if (count <= limit) return absl::OkStatus();
  return InvalidArgument("{} has {} entries, more than {}", field, count, limit);
}

absl::Status CheckIds(std::string_view field, std::span<const TokenId> ids,
                      std::int32_t vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return InvalidArgument("{}[{}] is {}, outside the vocabulary [0, {})", field, i, ids[i],
                           vocab_size);
  }
  return absl::OkStatus();
}

// A string of nothing but `blanks` counts as empty.
absl::Status CheckStrings(std::string_view field, std::span<const std::string> strings,
                          std::string_view blanks, std::size_t max_bytes) {
  for (std::size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].find_first_not_of(blanks) == std::string::npos) {
      return InvalidArgument("{}[{}] is empty", field, i);
    }
    if (strings[i].size() > max_bytes) {
      return InvalidArgument("{}[{}] has {} bytes, more than {}", field, i, strings[i].size(),
                             max_bytes);
    }
    if (const auto offset = text::FindInvalidUtf8(strings[i])) {
      return InvalidArgument("{}[{}] is not UTF-8 at byte {}", field, i, *offset);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const SamplingParams& params) {
  if (params.n < 1 || params.n > kMaxBranches) {
    return InvalidArgument("n must be in [1, {}], got {}", kMaxBranches, params.n);
  }
  QUIRE_RETURN_IF_ERROR(CheckRange("temperature", params.temperature, 0, 2));
  if (params.n > 1 && params.IsGreedy()) {
    return InvalidArgument("n must be 1 when temperature is below 1e-5 (greedy), got {}", params.n);
  }
  if (params.top_p && !(*params.top_p > 0 && *params.top_p <= 1)) {
    return InvalidArgument("top_p must be in (0, 1], got {}", *params.top_p);
  }
  QUIRE_RETURN_IF_ERROR(CheckAtLeast("top_k", params.top_k, -1));
  QUIRE_RETURN_IF_ERROR(CheckRange("min_p", params.min_p, 0, 1));
  // Must stay so as the f32 that it becomes.
  const double repetition_penalty = params.repetition_penalty.value_or(1);
  if (!(repetition_penalty >= std::numeric_limits<float>::min() &&
        repetition_penalty <= std::numeric_limits<float>::max())) {
    return InvalidArgument("repetition_penalty must be finite and above 0, got {}",
                           repetition_penalty);
  }
  QUIRE_RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty, -2, 2));
  QUIRE_RETURN_IF_ERROR(CheckRange("frequency_penalty", params.frequency_penalty, -2, 2));
  return absl::OkStatus();
}

absl::Status CheckTokenIds(const SamplingParams& params, std::int32_t vocab_size) {
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument("logit_bias has token {}, outside the vocabulary [0, {})", token,
                             vocab_size);
    }
    if (!std::isfinite(bias)) {
      return InvalidArgument("logit_bias of token {} must be finite, got {}", token, bias);
    }
  }
  QUIRE_RETURN_IF_ERROR(CheckCount("allowed_token_ids", params.allowed_token_ids.size(),
                                   static_cast<std::size_t>(vocab_size)));
  QUIRE_RETURN_IF_ERROR(CheckIds("allowed_token_ids", params.allowed_token_ids, vocab_size));
  QUIRE_RETURN_IF_ERROR(
      CheckCount("stop_token_ids", params.stop_token_ids.size(), kMaxStopTokenIds));
  return CheckIds("stop_token_ids", params.stop_token_ids, vocab_size);
}

absl::Status CheckLengths(const SamplingParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckAtLeast("max_tokens", params.max_tokens, 1));
  QUIRE_RETURN_IF_ERROR(CheckAtLeast("min_tokens", params.min_tokens, 0));
  if (params.max_tokens && params.min_tokens > *params.max_tokens) {
    return InvalidArgument("min_tokens ({}) must not exceed max_tokens ({})", params.min_tokens,
                           *params.max_tokens);
  }
  QUIRE_RETURN_IF_ERROR(CheckAtLeast("logprobs", params.logprobs, -1));
  QUIRE_RETURN_IF_ERROR(CheckAtLeast("prompt_logprobs", params.prompt_logprobs, -1));
  if (params.truncate_prompt_tokens && *params.truncate_prompt_tokens < 1 &&
      *params.truncate_prompt_tokens != -1) {
    return InvalidArgument("truncate_prompt_tokens must be -1 or at least 1, got {}",
                           *params.truncate_prompt_tokens);
  }
  return absl::OkStatus();
}

absl::Status CheckTexts(const SamplingParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckCount("stop", params.stop.size(), kMaxStopStrings));
  QUIRE_RETURN_IF_ERROR(CheckStrings("stop", params.stop, "", kMaxStopStringBytes));
  if (!params.stop.empty() && !params.detokenize) {
    return InvalidArgument("stop needs detokenize");
  }
  QUIRE_RETURN_IF_ERROR(CheckCount("bad_words", params.bad_words.size(), kMaxBadWords));
  return CheckStrings("bad_words", params.bad_words, " ", kMaxBadWordBytes);
}

}  // namespace

bool SamplingParams::IsGreedy() const { return temperature && *temperature < kGreedyBelow; }

absl::Status SamplingParams::Validate(std::int32_t vocab_size) const {
  QUIRE_RETURN_IF_ERROR(CheckNumbers(*this));
  QUIRE_RETURN_IF_ERROR(CheckTokenIds(*this, vocab_size));
  QUIRE_RETURN_IF_ERROR(CheckLengths(*this));
  return CheckTexts(*this);
}

SamplingParams Resolve(SamplingParams params, const SamplingDefaults& defaults) {
  if (!params.temperature) params.temperature = defaults.temperature.value_or(1);
  if (!params.top_p) params.top_p = defaults.top_p.value_or(1);
  if (!params.top_k) params.top_k = defaults.top_k.value_or(0);
  if (!params.min_p) params.min_p = defaults.min_p.value_or(0);
  if (!params.repetition_penalty) {
    params.repetition_penalty = defaults.repetition_penalty.value_or(1);
  }
  return params;
}

}  // namespace quire::engine::sampling
