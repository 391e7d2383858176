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
  return options;
}

TEST(Workload, IsTheSameForTheSameSeedOnly) {
  const auto a = MakeWorkload(Options(WorkloadKind::kRandom));
  const auto b = MakeWorkload(Options(WorkloadKind::kRandom));
  WorkloadOptions other = Options(WorkloadKind::kRandom);
  other.seed = 6;
  const auto c = MakeWorkload(other);
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
  const auto requests = MakeWorkload(Options(WorkloadKind::kSharedPrefix));
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
  for (const BenchRequest& request : MakeWorkload(options)) {
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
