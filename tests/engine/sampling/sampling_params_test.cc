#include "engine/sampling/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace quire::engine::sampling {
namespace {

using testing::HasSubstr;

constexpr std::int32_t kVocab = 100;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void ExpectValid(const SamplingParams& params) {
  const absl::Status status = params.Validate(kVocab);
  EXPECT_TRUE(status.ok()) << status;
}
void ExpectRefused(const SamplingParams& params, const std::string& message) {
  const absl::Status status = params.Validate(kVocab);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(SamplingParams, DefaultsAreValid) { ExpectValid({}); }

TEST(SamplingParams, C54_Temperature) {
  for (const double value : {1e-4, 1e-6, 1e-38, 1e-45, 0.0, 2.0}) {
    ExpectValid({.temperature = value});
  }
  for (const double value : {-1.0, -1e-9, kNan, kInfinity, -kInfinity, 2.01}) {
    ExpectRefused({.temperature = value}, "temperature must be in [0, 2]");
  }
}

TEST(SamplingParams, C54_Filters) {
  for (const double value : {1e-4, 1.0}) ExpectValid({.top_p = value});
  for (const double value : {0.0, 1.5, -0.1, kNan, kInfinity}) {
    ExpectRefused({.top_p = value}, "top_p must be in (0, 1]");
  }
  for (const int value : {-1, 0, 1, 1 << 30}) ExpectValid({.top_k = value});
  ExpectRefused({.top_k = -2}, "top_k must be at least -1, got -2");
  for (const double value : {0.0, 1.0}) ExpectValid({.min_p = value});
  for (const double value : {-0.1, 1.1, kNan}) ExpectRefused({.min_p = value}, "min_p");
}

TEST(SamplingParams, Penalties) {
  for (const double value : {-2.0, 2.0}) {
    ExpectValid({.presence_penalty = value, .frequency_penalty = value});
  }
  for (const double value : {-2.1, 2.1, kNan, kInfinity}) {
    ExpectRefused({.presence_penalty = value}, "presence_penalty must be in [-2, 2]");
    ExpectRefused({.frequency_penalty = value}, "frequency_penalty must be in [-2, 2]");
  }
  for (const double value : {0.01, 1e6}) ExpectValid({.repetition_penalty = value});
  // The last two are no longer finite and above 0 as f32.
  for (const double value : {0.0, -1.0, kNan, kInfinity, 1e39, 1e-46}) {
    ExpectRefused({.repetition_penalty = value}, "repetition_penalty");
  }
}

TEST(SamplingParams, C46_IdsOutsideTheVocabulary) {
  ExpectValid({.logit_bias = {{kVocab - 1, 1.0}}});
  ExpectValid({.allowed_token_ids = {0, kVocab - 1}});
  ExpectValid({.stop_token_ids = {kVocab - 1}});
  for (const TokenId id :
       {kVocab, -1, std::numeric_limits<TokenId>::max(), std::numeric_limits<TokenId>::min()}) {
    ExpectRefused({.logit_bias = {{id, 1.0}}}, "logit_bias");
    ExpectRefused({.allowed_token_ids = {1, id}}, "allowed_token_ids[1]");
    ExpectRefused({.stop_token_ids = {id}}, "stop_token_ids[0]");
  }
  for (const double bias : {kNan, kInfinity}) {
    ExpectRefused({.logit_bias = {{1, bias}}}, "logit_bias of token 1 must be finite");
  }
  ExpectValid({.logit_bias = {{1, 1e9}}});  // Clamped later.
}

TEST(SamplingParams, C42_StopStrings) {
  ExpectValid({.stop = {"ab", "abc"}});
  ExpectValid({.stop = {std::string("\0", 1)}});
  ExpectValid({.stop = std::vector<std::string>(16, "x")});
  ExpectValid({.stop = {std::string(1024, 'x')}});
  ExpectRefused({.stop = {"ok", ""}}, "stop[1] is empty");
  ExpectRefused({.stop = std::vector<std::string>(17, "x")}, "stop has 17 entries, more than 16");
  ExpectRefused({.stop = std::vector<std::string>(1000, "x")}, "stop has 1000 entries");
  ExpectRefused({.stop = {std::string(1 << 20, 'x')}}, "stop[0] has 1048576 bytes");
  ExpectRefused({.stop = {"a\xC3"}}, "stop[0] is not UTF-8 at byte 1");
  ExpectRefused({.stop = {"a"}, .detokenize = false}, "stop needs detokenize");
}

TEST(SamplingParams, StopTokenIdsAreBounded) {
  ExpectValid({.stop_token_ids = std::vector<TokenId>(1024, 1)});
  ExpectRefused({.stop_token_ids = std::vector<TokenId>(1025, 1)}, "stop_token_ids has 1025");
  ExpectRefused({.allowed_token_ids = std::vector<TokenId>(kVocab + 1, 1)},
                "allowed_token_ids has 101");
}

TEST(SamplingParams, BadWords) {
  ExpectValid({.bad_words = {" a", "b c"}});
  ExpectRefused({.bad_words = {"a", "  "}}, "bad_words[1] is empty");
  ExpectRefused({.bad_words = std::vector<std::string>(129, "x")}, "bad_words has 129");
  ExpectRefused({.bad_words = {std::string(1025, 'x')}}, "bad_words[0] has 1025 bytes");
  ExpectRefused({.bad_words = {"\xFF"}}, "bad_words[0] is not UTF-8");
}

TEST(SamplingParams, C72_Lengths) {
  for (const int value : {1, std::numeric_limits<int>::max()}) ExpectValid({.max_tokens = value});
  for (const int value : {0, -1})
    ExpectRefused({.max_tokens = value}, "max_tokens must be at least");
  ExpectRefused({.min_tokens = -1}, "min_tokens must be at least 0");
  ExpectValid({.max_tokens = 4, .min_tokens = 4});
  ExpectRefused({.max_tokens = 4, .min_tokens = 5},
                "min_tokens (5) must not exceed max_tokens (4)");
}

TEST(SamplingParams, Logprobs) {
  for (const int value : {-1, 0, 20}) {
    ExpectValid({.logprobs = value, .prompt_logprobs = value});
  }
  ExpectRefused({.logprobs = -2}, "logprobs must be at least -1");
  ExpectRefused({.prompt_logprobs = -2}, "prompt_logprobs must be at least -1");
}

TEST(SamplingParams, TruncatePromptTokens) {
  for (const int value : {-1, 1, 100}) ExpectValid({.truncate_prompt_tokens = value});
  for (const int value : {0, -2}) {
    ExpectRefused({.truncate_prompt_tokens = value}, "truncate_prompt_tokens");
  }
}

TEST(SamplingParams, Branches) {
  ExpectValid({.n = 4, .temperature = 1});
  for (const int value : {0, -1, 16385}) ExpectRefused({.n = value}, "n must be in [1, 16384]");
  ExpectRefused({.n = 2, .temperature = 0}, "n must be 1 when temperature is below 1e-5");
}

TEST(Resolve, RequestThenModelThenVllm) {
  const SamplingDefaults model = {.temperature = 0.6, .top_p = 0.95, .top_k = 20};
  const SamplingParams params = Resolve({.temperature = 0.2}, model);
  EXPECT_EQ(params.temperature, 0.2);
  EXPECT_EQ(params.top_p, 0.95);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.min_p, 0);
  EXPECT_EQ(params.repetition_penalty, 1);
  EXPECT_EQ(params.max_tokens, std::nullopt);
  const SamplingParams plain = Resolve({}, {});
  EXPECT_EQ(plain.temperature, 1);
  EXPECT_EQ(plain.top_p, 1);
  EXPECT_EQ(plain.top_k, 0);
}

}  // namespace
}  // namespace quire::engine::sampling
