#include "cli/bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace quire::cli::bench {
namespace {

WorkloadOptions Options(WorkloadKind kind) {
  WorkloadOptions options;
  options.kind = kind;
  options.num_prompts = 20;
  options.input_len = 50;
  options.output_len = 8;
  options.prefix_len = 32;
  options.num_prefixes = 3;
  options.seed = 5;
  options.vocab_size = 1000;
  options.max_model_len = 4096;
  return options;
}

TEST(Workload, IsTheSameForTheSameSeedOnly) {
  const auto a = *MakeWorkload(Options(WorkloadKind::kRandom));
  const auto b = *MakeWorkload(Options(WorkloadKind::kRandom));
  WorkloadOptions other = Options(WorkloadKind::kRandom);
  other.seed = 6;
  const auto c = *MakeWorkload(other);
  ASSERT_EQ(a.size(), 20U);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].prompt, b[i].prompt);
    EXPECT_NE(a[i].prompt, c[i].prompt);
    EXPECT_EQ(a[i].prompt.size(), 50U);
    EXPECT_EQ(a[i].output_len, 8);
    for (const TokenId id : a[i].prompt) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, 1000);
    }
  }
  EXPECT_NE(a[0].prompt, a[1].prompt);
}

TEST(Workload, SharesExactlyThePrefix) {
  const auto requests = *MakeWorkload(Options(WorkloadKind::kSharedPrefix));
  const auto shared = [&](std::size_t i, std::size_t j) {
    const auto& a = requests[i].prompt;
    const auto& b = requests[j].prompt;
    return std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
  };
  EXPECT_EQ(requests[0].prompt.size(), 32U + 50U);
  EXPECT_EQ(shared(0, 3), 32);
  EXPECT_EQ(shared(1, 4), 32);
  EXPECT_EQ(shared(0, 1), 0);
}

TEST(Workload, VariesLengthsWithinTheRange) {
  WorkloadOptions options = Options(WorkloadKind::kRandom);
  options.num_prompts = 200;
  options.range_ratio = 0.5;
  std::size_t shortest = 1000;
  std::size_t longest = 0;
  const auto requests = *MakeWorkload(options);
  for (const BenchRequest& request : requests) {
    shortest = std::min(shortest, request.prompt.size());
    longest = std::max(longest, request.prompt.size());
    EXPECT_GE(request.output_len, 4);
    EXPECT_LE(request.output_len, 12);
  }
  EXPECT_GE(shortest, 25U);
  EXPECT_LT(shortest, 30U);
  EXPECT_LE(longest, 75U);
  EXPECT_GT(longest, 70U);
}

TEST(Workload, FixedLengthsDoNotVary) {
  WorkloadOptions options = Options(WorkloadKind::kFixed);
  options.range_ratio = 0.5;
  const auto requests = *MakeWorkload(options);
  for (const BenchRequest& request : requests) {
    EXPECT_EQ(request.prompt.size(), 50U);
    EXPECT_EQ(request.output_len, 8);
  }
}

struct Means {
  double input = 0, output = 0;
};

Means MeansOf(const std::vector<BenchRequest>& requests) {
  Means means;
  for (const BenchRequest& request : requests) {
    means.input += double(request.prompt.size()) / double(requests.size());
    means.output += double(request.output_len) / double(requests.size());
  }
  return means;
}

TEST(Workload, ShapedLengthsHaveTheMeansOfTheirDataSets) {
  struct Case {
    WorkloadKind kind;
    double input, output;  // Before clipping to 4..2048, which takes a few percent.
  };
  for (const Case& c :
       {Case{WorkloadKind::kShareGpt, 161, 338}, Case{WorkloadKind::kAlpaca, 19, 58},
        Case{WorkloadKind::kLogNormal, 50, 8}}) {
    WorkloadOptions options = Options(c.kind);
    options.num_prompts = 4000;
    const auto requests = *MakeWorkload(options);
    ASSERT_EQ(requests.size(), 4000U);
    const Means means = MeansOf(requests);
    EXPECT_NEAR(means.input, c.input, 0.06 * c.input) << WorkloadName(c.kind);
    EXPECT_NEAR(means.output, c.output, 0.06 * c.output) << WorkloadName(c.kind);
    for (const BenchRequest& request : requests) {
      EXPECT_GE(request.prompt.size(), 4U);
      EXPECT_GE(request.output_len, 4);
      EXPECT_LE(request.prompt.size() + static_cast<std::size_t>(request.output_len), 2048U);
      EXPECT_LT(*std::ranges::max_element(request.prompt), 1000);
    }
  }
}

TEST(Workload, ShapedLengthsAreCutToTheContext) {
  WorkloadOptions options = Options(WorkloadKind::kShareGpt);
  options.num_prompts = 500;
  options.max_model_len = 128;
  std::size_t longest = 0;
  const auto requests = *MakeWorkload(options);
  for (const BenchRequest& request : requests) {
    longest =
        std::max(longest, request.prompt.size() + static_cast<std::size_t>(request.output_len));
  }
  EXPECT_EQ(longest, 128U);
  options.max_model_len = 3;
  EXPECT_EQ(MakeWorkload(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Workload, LaterTurnsSendWhatIsNewAndFollowTheTurnBefore) {
  WorkloadOptions options = Options(WorkloadKind::kMultiTurn);
  options.num_prompts = 2;
  options.num_turns = 3;
  const auto requests = *MakeWorkload(options);
  EXPECT_THAT(FollowsOf(requests), testing::ElementsAre(kNoRequest, 0, 1, kNoRequest, 3, 4));
  for (const BenchRequest& request : requests) {
    EXPECT_EQ(request.prompt.size(), 50U);
    EXPECT_EQ(request.output_len, 8);
  }
  EXPECT_NE(requests[0].prompt, requests[1].prompt);
  EXPECT_NE(requests[0].prompt, requests[3].prompt);
}

TEST(Workload, EveryKindHasAName) {
  EXPECT_EQ(WorkloadNames().size(), 7U);
  EXPECT_EQ(WorkloadName(WorkloadKind::kMultiTurn), "multi-turn");
  EXPECT_EQ(WorkloadName(WorkloadKind::kShareGpt), "sharegpt");
}

TEST(PoissonArrivals, HaveExponentialGapsOfTheRightMean) {
  const auto arrivals = PoissonArrivals(20000, 50, 1);
  ASSERT_EQ(arrivals.size(), 20000U);
  EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
  EXPECT_NEAR(absl::ToDoubleSeconds(arrivals.back()), 400, 10);
  // P(gap > mean) = 1/e.
  int long_gaps = 0;
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    long_gaps += arrivals[i] - arrivals[i - 1] > absl::Milliseconds(20);
  }
  EXPECT_NEAR(long_gaps / 20000.0, 0.3679, 0.01);
  EXPECT_EQ(arrivals, PoissonArrivals(20000, 50, 1));
  EXPECT_NE(arrivals, PoissonArrivals(20000, 50, 2));
}

}  // namespace
}  // namespace quire::cli::bench
