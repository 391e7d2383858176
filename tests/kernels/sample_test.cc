#include "kernels/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "base/philox.h"

namespace quire::kernels {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SampleResult Sample(std::vector<float> logits, const SampleRow& row) {
  SampleScratch scratch;
  SampleResult result;
  SampleOne(logits, row, scratch, result);
  return result;
}

// How often each token comes out over `draws` draws of stream `seed`.
std::vector<int> Histogram(const std::vector<float>& logits, SampleRow row, int draws,
                           std::uint64_t seed = 11) {
  SampleScratch scratch;
  SampleResult result;
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < draws; ++i) {
    std::vector<float> copy = logits;
    row.uniform = PhiloxUniform(seed, 0, static_cast<std::uint64_t>(i));
    SampleOne(copy, row, scratch, result);
    EXPECT_TRUE(result.ok);
    ++counts[result.token];
  }
  return counts;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  const double max = *std::max_element(logits.begin(), logits.end());
  for (const float logit : logits) p.push_back(std::exp((logit - max) / temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

double ChiSquare(const std::vector<int>& counts, const std::vector<double>& p) {
  const double draws = std::accumulate(counts.begin(), counts.end(), 0);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
      continue;
    }
    sum += (counts[i] - draws * p[i]) * (counts[i] - draws * p[i]) / (draws * p[i]);
  }
  return sum;
}

// Logits of a vocabulary large enough for blocks and pieces.
std::vector<float> RandomLogits(std::size_t size, double spread) {
  std::vector<float> logits(size);
  for (std::size_t i = 0; i < size; ++i) {
    logits[i] = static_cast<float>(spread * PhiloxUniform(5, 0, i));
  }
  return logits;
}

TEST(SampleGreedy, TakesTheHighestLogitAndTheLowestIdOfTies) {
  EXPECT_EQ(Sample({1, 3, 2}, {}).token, 1);
  EXPECT_EQ(Sample({1, 3, 2, 3}, {}).token, 1);
  EXPECT_EQ(Sample({-kInfinity, -5}, {}).token, 1);
}

TEST(SampleGreedy, IgnoresTopPAndUniform) {
  EXPECT_EQ(Sample({1, 3, 2.9F}, {.top_p = 0.01F, .uniform = 0.999}).token, 1);
}

// C54: a tiny temperature gives the greedy result, never inf or NaN.
TEST(SampleTemperature, C54_TinyTemperaturesAreGreedy) {
  for (const float temperature : {1e-4F, 1e-6F, 1e-38F, 1e-45F}) {
    for (const double uniform : {1e-9, 0.5, 1 - 1e-9}) {
      const SampleResult result =
          Sample({80, 80.5F, -90, 79}, {.temperature = temperature, .uniform = uniform});
      ASSERT_TRUE(result.ok) << temperature;
      EXPECT_EQ(result.token, 1) << temperature;
    }
  }
}

TEST(SampleTemperature, C54_TinyTopPKeepsOneToken) {
  for (const float top_p : {1e-4F, 1e-30F, 0.0F}) {
    const SampleRow row{.temperature = 1, .top_p = top_p, .uniform = 0.99};
    EXPECT_EQ(Sample({2, 2.1F, 2}, row).token, 1) << top_p;
  }
}

TEST(SampleTemperature, DrawsFromTheSoftmax) {
  const std::vector<float> logits = {0, 1, -1, 0.5F, 2, -3, 0, 1.5F};
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    const auto counts = Histogram(logits, {.temperature = temperature}, 100'000);
    // 7 degrees of freedom: above 29.9 with probability 1e-4.
    EXPECT_LT(ChiSquare(counts, Softmax(logits, temperature)), 29.9) << temperature;
  }
}

TEST(SampleTemperature, VeryHighTemperatureIsUniform) {
  const auto counts = Histogram({5, -5, 0, 3}, {.temperature = 1e30F}, 40'000);
  EXPECT_LT(ChiSquare(counts, {0.25, 0.25, 0.25, 0.25}), 21.1);  // 3 degrees of freedom
}

TEST(SampleDraw, WalksTokensByAscendingId) {
  // Weights 1, 1, 2 of 4.
  const std::vector<float> logits = {0, 0, std::log(2.0F)};
  const auto draw = [&](double uniform) {
    return Sample(logits, {.temperature = 1, .uniform = uniform}).token;
  };
  EXPECT_EQ(draw(0.0001), 0);
  EXPECT_EQ(draw(0.2499), 0);
  EXPECT_EQ(draw(0.2501), 1);
  EXPECT_EQ(draw(0.4999), 1);
  EXPECT_EQ(draw(0.5001), 2);
  EXPECT_EQ(draw(1 - 1e-16), 2);
}

TEST(SampleDraw, MatchesTheCumulativeSumOfALargeVocabulary) {
  const std::vector<float> logits = RandomLogits(5'003, 8);
  const std::vector<double> p = Softmax(logits, 0.9);
  for (int i = 0; i < 500; ++i) {
    const double uniform = PhiloxUniform(3, 1, static_cast<std::uint64_t>(i));
    const TokenId token = Sample(logits, {.temperature = 0.9F, .uniform = uniform}).token;
    const double before = std::accumulate(p.begin(), p.begin() + token, 0.0);
    EXPECT_LE(before, uniform + 1e-6);
    EXPECT_GE(before + p[token], uniform - 1e-6);
  }
}

TEST(SampleDraw, NeverReturnsAForbiddenLastToken) {
  const std::vector<TokenId> banned = {2, 3};
  const SampleRow row{.temperature = 1, .uniform = 1 - 1e-16, .banned = banned};
  EXPECT_EQ(Sample({0, 0, 9, 9}, row).token, 1);
}

// C56: exactly k tokens, also when logits tie, so that top_k 1 is arg-max.
TEST(SampleTopK, C56_OneIsArgMaxWithTheLowestIdOfTies) {
  for (int i = 0; i < 100; ++i) {
    const double uniform = PhiloxUniform(1, 0, static_cast<std::uint64_t>(i));
    EXPECT_EQ(Sample({1, 7, 7, 2}, {.temperature = 1, .top_k = 1, .uniform = uniform}).token, 1);
  }
}

TEST(SampleTopK, KeepsExactlyKOfTiedTokens) {
  const auto counts = Histogram({5, 7, 7, 7, 7, 2}, {.temperature = 1, .top_k = 2}, 10'000);
  EXPECT_LT(ChiSquare(counts, {0, 0.5, 0.5, 0, 0, 0}), 15.2);
}

TEST(SampleTopK, LargerThanWhatIsAllowedKeepsAll) {
  const std::vector<TokenId> banned = {0};
  const auto counts =
      Histogram({9, 1, 1, 1}, {.temperature = 1, .top_k = 3, .banned = banned}, 9'000);
  EXPECT_LT(ChiSquare(counts, {0, 1.0 / 3, 1.0 / 3, 1.0 / 3}), 18.5);
}

TEST(SampleTopP, KeepsTokensUntilTheShareIsPassed) {
  // Weights 8, 4, 2, 1, 1 of 16; 0.75 is passed exactly after the second token.
  std::vector<float> logits;
  for (const float weight : {1.0F, 4.0F, 8.0F, 2.0F, 1.0F}) logits.push_back(std::log(weight));
  const auto support = [&](float top_p) {
    const auto counts = Histogram(logits, {.temperature = 1, .top_p = top_p}, 4'000);
    std::vector<int> kept;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) kept.push_back(static_cast<int>(i));
    }
    return kept;
  };
  EXPECT_THAT(support(0.49F), ElementsAre(2));
  EXPECT_THAT(support(0.51F), ElementsAre(1, 2));
  EXPECT_THAT(support(0.74F), ElementsAre(1, 2));
  EXPECT_THAT(support(0.76F), ElementsAre(1, 2, 3));
  EXPECT_THAT(support(0.90F), ElementsAre(0, 1, 2, 3));  // the lower id of the tied last two
  EXPECT_THAT(support(0.95F), ElementsAre(0, 1, 2, 3, 4));
}

TEST(SampleTopP, RenormalisesWhatIsKept) {
  std::vector<float> logits;
  for (const float weight : {8.0F, 4.0F, 2.0F, 1.0F, 1.0F}) logits.push_back(std::log(weight));
  const auto counts = Histogram(logits, {.temperature = 1, .top_p = 0.74F}, 60'000);
  EXPECT_LT(ChiSquare(counts, {2.0 / 3, 1.0 / 3, 0, 0, 0}), 15.2);
}

TEST(SampleTopP, CountsTheShareAfterTopK) {
  // top_k leaves 8 and 4 of 12; 0.6 of that is the first alone, of 16 it would be both.
  std::vector<float> logits;
  for (const float weight : {8.0F, 4.0F, 2.0F, 1.0F, 1.0F}) logits.push_back(std::log(weight));
  const auto counts = Histogram(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6F}, 2'000);
  EXPECT_THAT(counts, ElementsAre(2'000, 0, 0, 0, 0));
}

// The fast selection against a full sort.
TEST(SampleTopP, AgreesWithAFullSortOnALargeVocabulary) {
  for (const double spread : {0.0, 0.5, 6.0, 40.0}) {
    const std::vector<float> logits = RandomLogits(4'099, spread);
    const std::vector<double> p = Softmax(logits, 1.0);
    std::vector<int> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p[a] > p[b]; });
    for (const float top_p : {0.05F, 0.5F, 0.9F, 0.999F}) {
      std::vector<bool> kept(logits.size(), false);
      double passed = 0;
      for (const int id : order) {
        if (passed >= top_p + 1e-6) break;
        kept[id] = true;
        passed += p[id];
      }
      for (int i = 0; i < 200; ++i) {
        const SampleRow row{.temperature = 1,
                            .top_p = top_p,
                            .uniform = PhiloxUniform(9, 0, static_cast<std::uint64_t>(i))};
        EXPECT_TRUE(kept[Sample(logits, row).token]) << spread << ' ' << top_p;
      }
    }
  }
}

TEST(SampleMinP, DropsTokensBelowAShareOfTheBest) {
  std::vector<float> logits;
  for (const float weight : {8.0F, 4.1F, 3.9F, 1.0F}) logits.push_back(std::log(weight));
  const auto counts = Histogram(logits, {.temperature = 1, .min_p = 0.5F}, 30'000);
  EXPECT_LT(ChiSquare(counts, {8 / 12.1, 4.1 / 12.1, 0, 0}), 15.2);
  const auto only = Histogram(logits, {.temperature = 1, .min_p = 1.0F}, 100);
  EXPECT_EQ(only[0], 100);
}

TEST(SampleMinP, ComparesAfterTemperature) {
  // At temperature 2 the weights 16 and 1 become 4 and 1.
  const std::vector<float> logits = {std::log(16.0F), 0};
  EXPECT_GT(Histogram(logits, {.temperature = 2, .min_p = 0.2F}, 1'000)[1], 0);
  EXPECT_EQ(Histogram(logits, {.temperature = 1, .min_p = 0.2F}, 1'000)[1], 0);
}

TEST(SampleConstraints, AllowedMaskAndBannedIds) {
  std::vector<float> logits(130, 1.0F);
  logits[3] = 9;
  logits[128] = 5;
  logits[129] = 4;
  std::vector<std::uint64_t> allowed = {0b10110, 0, 0b11};  // 1, 2, 4, 128, 129
  EXPECT_EQ(Sample(logits, {.allowed = allowed}).token, 128);
  const std::vector<TokenId> banned = {128};
  EXPECT_EQ(Sample(logits, {.banned = banned, .allowed = allowed}).token, 129);
  const std::vector<TokenId> all = {1, 2, 4, 128, 129};
  EXPECT_FALSE(Sample(logits, {.banned = all, .allowed = allowed}).ok);
}

TEST(SampleConstraints, BiasMovesAndCannotReviveBannedIds) {
  const std::vector<TokenBias> bias = {{2, 100}, {0, -100}};
  EXPECT_EQ(Sample({5, 1, -50}, {.bias = bias}).token, 2);
  const std::vector<TokenId> banned = {2};
  EXPECT_EQ(Sample({5, 1, -50}, {.bias = bias, .banned = banned}).token, 1);
}

// C59: presence and frequency look at the output only, repetition at the prompt too.
TEST(SamplePenalties, C59_PresenceAndFrequencyIgnoreThePrompt) {
  const std::vector<TokenId> prompt = {1, 2};
  EXPECT_EQ(Sample({0, 3, 2}, {.presence_penalty = 2, .prompt_tokens = prompt}).token, 1);
  EXPECT_EQ(Sample({0, 3, 2}, {.frequency_penalty = 2, .prompt_tokens = prompt}).token, 1);
  EXPECT_EQ(Sample({2.5F, 3, 2}, {.repetition_penalty = 1.5F, .prompt_tokens = prompt}).token, 0);
}

TEST(SamplePenalties, FrequencyCountsAndPresenceDoesNot) {
  const std::vector<TokenCount> counts = {{1, 3}, {2, 1}};
  // 10 - 3 * 1.5 = 5.5; 7 - 1.5 = 5.5 - 0.01 more for token 2.
  EXPECT_EQ(Sample({0, 10, 6.99F}, {.frequency_penalty = 1.5F, .output_counts = counts}).token, 1);
  EXPECT_EQ(Sample({0, 10, 7.01F}, {.frequency_penalty = 1.5F, .output_counts = counts}).token, 2);
  EXPECT_EQ(Sample({8.6F, 10, 0}, {.presence_penalty = 1.5F, .output_counts = counts}).token, 0);
  EXPECT_EQ(Sample({8.4F, 10, 0}, {.presence_penalty = 1.5F, .output_counts = counts}).token, 1);
}

TEST(SamplePenalties, RepetitionDividesPositiveAndMultipliesNegativeLogitsOnce) {
  const std::vector<TokenCount> counts = {{1, 4}};
  const std::vector<TokenId> prompt = {1};
  const auto pick = [&](std::vector<float> logits) {
    return Sample(logits,
                  {.repetition_penalty = 2, .output_counts = counts, .prompt_tokens = prompt})
        .token;
  };
  EXPECT_EQ(pick({1.9F, 4}), 1);  // 4 / 2; twice would give 1
  EXPECT_EQ(pick({2.1F, 4}), 0);
  EXPECT_EQ(pick({-2.1F, -1}), 1);  // -1 * 2
  EXPECT_EQ(pick({-1.9F, -1}), 0);
}

TEST(SamplePenalties, ExtremeParametersDoNotMakeInfinities) {
  const std::vector<TokenCount> counts = {{0, 1}, {1, 1}};
  const SampleResult result = Sample(
      {50, 60, 1}, {.temperature = 1, .repetition_penalty = 1e-38F, .output_counts = counts});
  EXPECT_TRUE(result.ok);
  EXPECT_NE(result.token, 2);
}

// C57: log-probabilities come from the raw logits whatever the sampling parameters.
TEST(SampleLogprobs, C57_DoNotDependOnSamplingParameters) {
  const std::vector<float> logits = {1, 4, 2, 3.5F, 0, -2};
  const std::vector<double> p = Softmax(logits, 1.0);
  const std::vector<TokenId> banned = {1};
  const SampleRow rows[] = {{.num_logprobs = 5},
                            {.temperature = 1, .top_p = 0.3F, .num_logprobs = 5},
                            {.temperature = 0.01F, .num_logprobs = 5},
                            {.temperature = 1, .top_k = 1, .num_logprobs = 5, .banned = banned}};
  for (const SampleRow& row : rows) {
    const SampleResult result = Sample(logits, row);
    ASSERT_EQ(result.top.size(), 5U);
    std::vector<TokenId> ids;
    for (const TokenLogprob& top : result.top) {
      ids.push_back(top.token);
      EXPECT_THAT(top.logprob, FloatNear(static_cast<float>(std::log(p[top.token])), 1e-6F));
    }
    EXPECT_THAT(ids, ElementsAre(1, 3, 2, 0, 4));
    EXPECT_FLOAT_EQ(result.logprob, static_cast<float>(std::log(p[result.token])));
  }
}

TEST(SampleLogprobs, RankCountsEntriesAtLeastAsLikely) {
  const std::vector<float> logits = {1, 4, 2, 4, 0};
  const auto rank = [&](TokenId token) {
    return Sample(logits, {.forced_token = token, .num_logprobs = 0}).rank;
  };
  EXPECT_EQ(rank(1), 2);  // both tied tokens get the worst rank of the tie
  EXPECT_EQ(rank(3), 2);
  EXPECT_EQ(rank(2), 3);
  EXPECT_EQ(rank(4), 5);
}

TEST(SampleLogprobs, TiesAreListedByLowestId) {
  const SampleResult result = Sample({1, 4, 2, 4, 4}, {.num_logprobs = 2});
  ASSERT_EQ(result.top.size(), 2U);
  EXPECT_EQ(result.top[0].token, 1);
  EXPECT_EQ(result.top[1].token, 3);
  EXPECT_EQ(result.last_rank, 3);  // With the one that is not listed.
}

TEST(SampleLogprobs, ManyAndAllEntriesAreSorted) {
  const std::vector<float> logits = RandomLogits(500, 3);
  for (const int count : {64, 65, 500, 1'000}) {
    const SampleResult result = Sample(logits, {.num_logprobs = count});
    ASSERT_EQ(result.top.size(), static_cast<std::size_t>(std::min(count, 500)));
    for (std::size_t i = 1; i < result.top.size(); ++i) {
      EXPECT_GE(logits[result.top[i - 1].token], logits[result.top[i].token]);
    }
    EXPECT_EQ(result.rank, 1);
  }
}

TEST(SampleLogprobs, SumOfAllProbabilitiesIsOne) {
  const std::vector<float> logits = RandomLogits(49'152, 12);
  double sum = 0;
  for (const TokenLogprob& top : Sample(logits, {.num_logprobs = 49'152}).top) {
    sum += std::exp(static_cast<double>(top.logprob));
  }
  EXPECT_NEAR(sum, 1.0, 1e-6);
}

TEST(SampleLogprobs, NoneAreMadeWhenNoneAreWanted) {
  EXPECT_TRUE(Sample({1, 2}, {}).top.empty());
  EXPECT_TRUE(Sample({1, 2}, {.num_logprobs = 0}).top.empty());
}

TEST(SampleForced, ScoresTheGivenTokenWithoutChangingLogits) {
  const std::vector<float> logits = {1, 4, 2};
  const std::vector<TokenId> banned = {0};
  const SampleResult result =
      Sample(logits, {.forced_token = 0, .temperature = 1, .num_logprobs = 1, .banned = banned});
  ASSERT_TRUE(result.ok);
  EXPECT_EQ(result.token, 0);
  EXPECT_EQ(result.rank, 3);
  EXPECT_FLOAT_EQ(result.logprob, static_cast<float>(std::log(Softmax(logits, 1.0)[0])));
  ASSERT_EQ(result.top.size(), 1U);
  EXPECT_EQ(result.top[0].token, 1);
}

// C60: a NaN row is reported, never turned into an id.
TEST(SampleInvalid, C60_NanAndInfinityAreReported) {
  for (const std::size_t place : {std::size_t{0}, std::size_t{7}, std::size_t{99}}) {
    for (const float bad : {kNan, -kNan, kInfinity}) {
      std::vector<float> logits(100, 0.5F);
      logits[place] = bad;
      EXPECT_FALSE(Sample(logits, {}).ok) << place << ' ' << bad;
      EXPECT_FALSE(Sample(logits, {.temperature = 1}).ok) << place << ' ' << bad;
      EXPECT_FALSE(Sample(logits, {.forced_token = 1, .num_logprobs = 1}).ok);
    }
  }
  EXPECT_FALSE(Sample({-kInfinity, -kInfinity}, {.temperature = 1}).ok);
}

TEST(SampleInvalid, MinusInfinityIsJustAnImpossibleToken) {
  const auto counts = Histogram({-kInfinity, 0, -kInfinity, 0}, {.temperature = 1}, 1'000);
  EXPECT_EQ(counts[0] + counts[2], 0);
  const SampleResult result = Sample({-kInfinity, 0}, {.num_logprobs = 0});
  EXPECT_EQ(result.token, 1);
  EXPECT_EQ(result.logprob, 0.0F);
}

TEST(SampleInvalid, AResultIsReusable) {
  SampleScratch scratch;
  SampleResult result;
  std::vector<float> logits = {1, 2, 3};
  SampleOne(logits, {.num_logprobs = 3}, scratch, result);
  ASSERT_EQ(result.top.size(), 3U);
  logits = {kNan, 2, 3};
  SampleOne(logits, {}, scratch, result);
  EXPECT_FALSE(result.ok);
  logits = {4, 2, 3};
  SampleOne(logits, {.num_logprobs = 1}, scratch, result);
  EXPECT_TRUE(result.ok);
  EXPECT_EQ(result.token, 0);
  EXPECT_EQ(result.top.size(), 1U);
}

}  // namespace
}  // namespace quire::kernels
