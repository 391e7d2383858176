#include "engine/sampling/sequence_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/philox.h"
#include "engine/sampling/logprobs.h"
#include "kernels/sample.h"
#include "tests/engine/text/test_tokenizers.h"

namespace quire::engine::sampling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr TokenId kEos = 7, kEos2 = 9;
const SamplingModel kModel = {
    .vocab_size = 300, .max_model_len = 64, .eos_token_ids = {kEos, kEos2}};

absl::StatusOr<std::shared_ptr<const RequestSampling>> TryCreate(
    const SamplingParams& params, const std::vector<TokenId>& prompt = {1, 2, 3},
    std::uint64_t seed = 5) {
  static const auto* const tokenizer = [] {
    text::TokenizerTables tables = text::ByteTables({" a", " ab"});
    tables.merges = {text::Spelling(" ") + " a", text::Spelling(" a") + " b"};
    return text::TokenizerFromTables(tables)->release();
  }();
  return RequestSampling::Create(Resolve(params, {}), seed, prompt, kModel, tokenizer);
}

std::shared_ptr<const RequestSampling> Create(const SamplingParams& params,
                                              const std::vector<TokenId>& prompt = {1, 2, 3},
                                              std::uint64_t seed = 5) {
  auto request = TryCreate(params, prompt, seed);
  EXPECT_TRUE(request.ok()) << request.status();
  return *request;
}

std::vector<TokenId> Banned(SequenceSampler& sampler) {
  const kernels::SampleRow row = sampler.NextRow();
  return {row.banned.begin(), row.banned.end()};
}

// What a branch chooses when every position has the same logits.
std::vector<TokenId> Draw(const std::shared_ptr<const RequestSampling>& request,
                          std::int32_t branch, int count) {
  SequenceSampler sampler(request, branch);
  std::vector<TokenId> tokens;
  kernels::SampleScratch scratch;
  kernels::SampleResult result;
  for (int i = 0; i < count; ++i) {
    std::vector<float> logits(static_cast<std::size_t>(kModel.vocab_size), 0);
    kernels::SampleOne(logits, sampler.NextRow(), scratch, result);
    EXPECT_TRUE(result.ok);
    tokens.push_back(result.token);
    sampler.Accept(result.token);
  }
  return tokens;
}

TEST(SequenceSampler, NumbersReachTheRow) {
  SequenceSampler sampler(Create({.temperature = 0.5,
                                  .top_p = 0.9,
                                  .top_k = 40,
                                  .min_p = 0.05,
                                  .repetition_penalty = 1.1,
                                  .presence_penalty = 0.25,
                                  .frequency_penalty = -0.5,
                                  .logit_bias = {{4, 3.0}, {5, 250.0}, {6, -1e9}},
                                  .logprobs = 3}),
                          0);
  const kernels::SampleRow row = sampler.NextRow();
  EXPECT_EQ(row.forced_token, -1);
  EXPECT_EQ(row.temperature, 0.5F);
  EXPECT_EQ(row.top_p, 0.9F);
  EXPECT_EQ(row.top_k, 40);
  EXPECT_EQ(row.min_p, 0.05F);
  EXPECT_EQ(row.repetition_penalty, 1.1F);
  EXPECT_EQ(row.presence_penalty, 0.25F);
  EXPECT_EQ(row.frequency_penalty, -0.5F);
  EXPECT_EQ(row.num_logprobs, 3);
  EXPECT_EQ(row.uniform, PhiloxUniform(5, 0, 0));
  ASSERT_EQ(row.bias.size(), 3U);  // Clamped as in vLLM.
  EXPECT_EQ(row.bias[0].bias, 3);
  EXPECT_EQ(row.bias[1].bias, 100);
  EXPECT_EQ(row.bias[2].bias, -100);
}

TEST(SequenceSampler, C54_TinyTemperatures) {
  for (const double greedy : {0.0, 1e-45, 1e-6}) {
    SequenceSampler sampler(Create({.temperature = greedy, .top_p = 0.5, .top_k = 5, .min_p = 0.5}),
                            0);
    const kernels::SampleRow row = sampler.NextRow();
    EXPECT_EQ(row.temperature, 0);
    EXPECT_EQ(row.top_p, 1);
    EXPECT_EQ(row.top_k, 0);
    EXPECT_EQ(row.min_p, 0);
  }
  for (const double raised : {1e-5, 1e-4, 0.0099}) {
    SequenceSampler sampler(Create({.temperature = raised}), 0);
    EXPECT_EQ(sampler.NextRow().temperature, 0.01F) << raised;
  }
}

TEST(SequenceSampler, CountsOfLogprobs) {
  const auto num_logprobs = [](std::optional<std::int32_t> wanted) {
    return SequenceSampler(Create({.logprobs = wanted}), 0).NextRow().num_logprobs;
  };
  EXPECT_EQ(num_logprobs(std::nullopt), -1);
  EXPECT_EQ(num_logprobs(0), 0);
  EXPECT_EQ(num_logprobs(5), 5);
  EXPECT_EQ(num_logprobs(-1), kModel.vocab_size);
  EXPECT_EQ(num_logprobs(1000), kModel.vocab_size);
}

TEST(SequenceSampler, AllowedIdsBecomeAMask) {
  const auto request = Create({.allowed_token_ids = {0, 63, 64, 299}});
  SequenceSampler sampler(request, 0);
  EXPECT_THAT(sampler.NextRow().allowed,
              ElementsAre(1ULL | 1ULL << 63, 1ULL, 0ULL, 0ULL, 1ULL << (299 - 256)));
  for (const TokenId token : Draw(request, 0, 50)) {
    EXPECT_THAT((std::set<TokenId>{0, 63, 64, 299}), testing::Contains(token));
  }
}

TEST(SequenceSampler, C48_MinTokensBansEveryStopId) {
  for (const int min_tokens : {0, 1, 4}) {
    const auto request =
        Create({.min_tokens = min_tokens, .stop_token_ids = {20}}, std::vector<TokenId>(10, 1));
    SequenceSampler sampler(request, 0);
    for (int i = 0; i < min_tokens; ++i) {
      EXPECT_THAT(Banned(sampler), UnorderedElementsAre(kEos, kEos2, 20)) << min_tokens;
      EXPECT_EQ(sampler.Accept(1), FinishCause::kNone);
    }
    EXPECT_THAT(Banned(sampler), IsEmpty());
    EXPECT_EQ(sampler.Accept(kEos2), FinishCause::kEos);  // The second of the list.
    EXPECT_EQ(sampler.num_output_tokens(), min_tokens + 1);
  }
}

TEST(RequestSampling, C48_StopIdsCountFromTheTokenAfterMinTokens) {
  const auto request = Create({.min_tokens = 4, .stop_token_ids = {20}});
  EXPECT_EQ(request->CheckFinish(kEos, 4), FinishCause::kNone);
  EXPECT_EQ(request->CheckFinish(20, 4), FinishCause::kNone);
  EXPECT_EQ(request->CheckFinish(kEos, 5), FinishCause::kEos);
  EXPECT_EQ(request->CheckFinish(20, 5), FinishCause::kStopToken);
}

TEST(SequenceSampler, C50_IgnoreEosCoversEveryEosButNoStopIdOfTheRequest) {
  SequenceSampler sampler(Create({.max_tokens = 50, .ignore_eos = true, .stop_token_ids = {20}}),
                          0);
  EXPECT_EQ(sampler.Accept(kEos), FinishCause::kNone);
  EXPECT_EQ(sampler.Accept(kEos2), FinishCause::kNone);
  EXPECT_EQ(sampler.Accept(20), FinishCause::kStopToken);
  // An EOS id that the request names itself stops.
  SequenceSampler named(Create({.ignore_eos = true, .stop_token_ids = {kEos2}}), 0);
  EXPECT_EQ(named.Accept(kEos), FinishCause::kNone);
  EXPECT_EQ(named.Accept(kEos2), FinishCause::kStopToken);
}

TEST(SequenceSampler, EndsAtMaxTokensAndAtTheContextsEnd) {
  SequenceSampler by_count(Create({.max_tokens = 2}), 0);
  EXPECT_EQ(by_count.Accept(1), FinishCause::kNone);
  EXPECT_EQ(by_count.Accept(1), FinishCause::kMaxTokens);

  SequenceSampler by_context(Create({}, std::vector<TokenId>(62, 1)), 0);
  EXPECT_EQ(by_context.Accept(1), FinishCause::kNone);
  EXPECT_EQ(by_context.Accept(1), FinishCause::kMaxModelLen);

  SequenceSampler stops(Create({.max_tokens = 1}), 0);
  EXPECT_EQ(stops.Accept(kEos), FinishCause::kEos);  // Both at once.
}

// min_tokens that reach past the context must not keep a sequence alive.
TEST(SequenceSampler, MinTokensDoNotSuspendTheLengthLimit) {
  SequenceSampler sampler(Create({.min_tokens = 1000}, std::vector<TokenId>(62, 1)), 0);
  EXPECT_EQ(sampler.Accept(1), FinishCause::kNone);
  EXPECT_EQ(sampler.Accept(1), FinishCause::kMaxModelLen);
}

TEST(SequenceSampler, C52_BranchesOfASeedDifferAndRepeat) {
  const auto request = Create({.n = 4, .temperature = 1}, {1}, 7);
  std::set<std::vector<TokenId>> different;
  for (std::int32_t branch = 0; branch < 4; ++branch) {
    const std::vector<TokenId> tokens = Draw(request, branch, 20);
    different.insert(tokens);
    EXPECT_EQ(Draw(Create({.n = 4, .temperature = 1}, {1}, 7), branch, 20), tokens);
  }
  EXPECT_EQ(different.size(), 4U);
}

TEST(SequenceSampler, C53_EqualSeedsDrawEqually) {
  const auto a = Create({.temperature = 1}, {1}, 5), b = Create({.temperature = 1}, {1}, 5);
  EXPECT_EQ(Draw(a, 0, 30), Draw(b, 0, 30));
  EXPECT_NE(Draw(a, 0, 30), Draw(Create({.temperature = 1}, {1}, 6), 0, 30));
}

TEST(SequenceSampler, DrawsByOutputPosition) {
  SequenceSampler sampler(Create({.temperature = 1}, {1}, 5), 2);
  for (std::uint64_t position = 0; position < 3; ++position) {
    EXPECT_EQ(sampler.NextRow().uniform, PhiloxUniform(5, 2, position));
    EXPECT_EQ(sampler.NextRow().uniform, PhiloxUniform(5, 2, position));  // No state moves.
    sampler.Accept(1);
  }
}

TEST(SequenceSampler, C59_OnlyRepetitionPenaltySeesThePrompt) {
  SequenceSampler penalties(Create({.presence_penalty = 2, .frequency_penalty = 1}, {4, 4, 8}), 0);
  EXPECT_THAT(penalties.NextRow().prompt_tokens, IsEmpty());
  EXPECT_THAT(penalties.NextRow().output_counts, IsEmpty());
  for (const TokenId token : {4, 6, 4}) penalties.Accept(token);
  const auto counts = penalties.NextRow().output_counts;
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].token, 4);
  EXPECT_EQ(counts[0].count, 2);
  EXPECT_EQ(counts[1].token, 6);
  EXPECT_EQ(counts[1].count, 1);

  SequenceSampler repetition(Create({.repetition_penalty = 1.5}, {8, 4, 4}), 0);
  EXPECT_THAT(repetition.NextRow().prompt_tokens, ElementsAre(4, 8));
  repetition.Accept(6);
  EXPECT_EQ(repetition.NextRow().output_counts.size(), 1U);

  SequenceSampler none(Create({}, {4}), 0);
  none.Accept(4);
  EXPECT_THAT(none.NextRow().output_counts, IsEmpty());
}

TEST(SequenceSampler, BadWordsBanTheirLastTokenAfterTheOthers) {
  // As byte tokens: "cd" is c d, " cd" is space c d; "ab" is a b, " ab" is one token.
  constexpr TokenId kSpaceAb = 260;
  SequenceSampler sampler(Create({.bad_words = {" ab", "cd"}}, {'c'}), 0);
  EXPECT_THAT(Banned(sampler), UnorderedElementsAre(kSpaceAb));  // The prompt does not count.
  sampler.Accept('c');
  EXPECT_THAT(Banned(sampler), UnorderedElementsAre(kSpaceAb, 'd'));
  sampler.Accept('a');
  EXPECT_THAT(Banned(sampler), UnorderedElementsAre(kSpaceAb, 'b'));
  sampler.Accept('x');
  EXPECT_THAT(Banned(sampler), UnorderedElementsAre(kSpaceAb));
  sampler.Accept(' ');
  sampler.Accept('c');
  EXPECT_THAT(Banned(sampler),
              UnorderedElementsAre(kSpaceAb, 'd', 'd'));  // Without and with a space.
}

TEST(RequestSampling, RefusesBadWordsItCannotTokenise) {
  const auto without = RequestSampling::Create(Resolve({.bad_words = {"a"}}, {}), 1, {}, kModel,
                                               /*tokenizer=*/nullptr);
  EXPECT_THAT(std::string(without.status().message()), HasSubstr("bad_words"));
  const auto many = TryCreate({.bad_words = {std::string(600, 'x')}});
  EXPECT_THAT(std::string(many.status().message()), HasSubstr("1201 tokens"));
  EXPECT_EQ(many.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestSampling, RefusesWhenNoTokenMayBeChosen) {
  const auto stops = TryCreate({.allowed_token_ids = {kEos, kEos2}, .min_tokens = 1});
  EXPECT_EQ(stops.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(stops.status().message()), HasSubstr("allowed_token_ids"));
  EXPECT_TRUE(TryCreate({.allowed_token_ids = {kEos, kEos2}}).ok());
  EXPECT_FALSE(TryCreate({.allowed_token_ids = {'a'}, .bad_words = {"a"}}).ok());
  EXPECT_TRUE(TryCreate({.allowed_token_ids = {'a', 'b'}, .bad_words = {"a"}}).ok());
}

TEST(Logprobs, RanksCountEqualOnes) {
  // Logits: one best, then three that tie, of which two are listed; the third was chosen.
  std::vector<float> logits = {1, 5, 1, 0, 1};
  kernels::SampleScratch scratch;
  kernels::SampleResult result;
  kernels::SampleOne(logits, {.forced_token = 4, .num_logprobs = 3}, scratch, result);
  ASSERT_TRUE(result.ok);
  const PositionLogprobs position = ToPositionLogprobs(result);
  EXPECT_EQ(position.chosen.token, 4);
  EXPECT_EQ(position.chosen.rank, 4);
  ASSERT_EQ(position.top.size(), 3U);  // With the chosen one k + 1 entries.
  EXPECT_EQ(position.top[0].token, 1);
  EXPECT_EQ(position.top[0].rank, 1);
  EXPECT_EQ(position.top[1].token, 0);
  EXPECT_EQ(position.top[1].rank, 4);
  EXPECT_EQ(position.top[2].token, 2);
  EXPECT_EQ(position.top[2].rank, 4);
  EXPECT_EQ(position.top[2].logprob, position.chosen.logprob);
}

// C57: whatever the sampling, the values come from the raw distribution and are all there.
TEST(Logprobs, C57_AsManyAsAskedForWhateverTheFilters) {
  for (const SamplingParams& params : {SamplingParams{.top_p = 0.3, .logprobs = 5},
                                       SamplingParams{.temperature = 0.01, .logprobs = 5},
                                       SamplingParams{.temperature = 0, .logprobs = 5}}) {
    SequenceSampler sampler(Create(params), 0);
    std::vector<float> logits(static_cast<std::size_t>(kModel.vocab_size), 0);
    logits[42] = 3;
    kernels::SampleScratch scratch;
    kernels::SampleResult result;
    kernels::SampleOne(logits, sampler.NextRow(), scratch, result);
    const PositionLogprobs position = ToPositionLogprobs(result);
    ASSERT_EQ(position.top.size(), 5U);
    EXPECT_EQ(position.top[0].token, 42);
    EXPECT_NEAR(position.top[0].logprob, 3 - std::log(299 + std::exp(3)), 1e-5);
    EXPECT_NEAR(position.top[4].logprob, -std::log(299 + std::exp(3)), 1e-5);
    EXPECT_EQ(position.top[4].rank, kModel.vocab_size);
  }
}

TEST(Logprobs, PromptRowsScoreTheTokenThatStandsThere) {
  const kernels::SampleRow row = PromptLogprobsRow(17, 2, 300);
  EXPECT_EQ(row.forced_token, 17);
  EXPECT_EQ(row.num_logprobs, 2);
  EXPECT_EQ(PromptLogprobsRow(17, -1, 300).num_logprobs, 300);
  EXPECT_EQ(PromptLogprobsRow(17, 1000, 300).num_logprobs, 300);
}

}  // namespace
}  // namespace quire::engine::sampling
