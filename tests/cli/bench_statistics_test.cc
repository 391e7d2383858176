#include "cli/bench/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace quire::cli::bench {
namespace {

std::vector<double> OneTo(int n) {
  std::vector<double> samples(static_cast<std::size_t>(n));
  std::iota(samples.begin(), samples.end(), 1);
  return samples;
}

TEST(Percentile, C112_IsTheNearestRank) {
  const auto of = [](std::vector<double> samples, double percent) {
    return Percentile(samples, percent);
  };
  EXPECT_EQ(of({10}, 50), 10);
  EXPECT_EQ(of({10}, 99), 10);
  EXPECT_EQ(of({10, 20}, 50), 10);
  EXPECT_EQ(of({10, 20}, 51), 20);
  EXPECT_EQ(of({10, 20}, 99), 20);
  EXPECT_EQ(of({10, 20, 30}, 50), 20);
  EXPECT_EQ(of({10, 20, 30}, 99), 30);
  EXPECT_EQ(of({10, 20, 30}, 0), 10);
  EXPECT_EQ(of({10, 20, 30}, 100), 30);
  EXPECT_EQ(of(OneTo(100), 50), 50);
  EXPECT_EQ(of(OneTo(100), 90), 90);
  EXPECT_EQ(of(OneTo(100), 99), 99);
  EXPECT_EQ(of(OneTo(100), 99.5), 100);
  EXPECT_EQ(of(OneTo(1000), 99.9), 999) << "a rounding error must not move the rank";
  EXPECT_EQ(of({}, 50), 0);
}

TEST(Summarize, C112_SortsAndKeepsDuplicates) {
  std::vector<double> samples = OneTo(100);
  std::reverse(samples.begin(), samples.end());
  std::swap(samples[3], samples[70]);
  const Summary summary = Summarize(samples);
  EXPECT_EQ(summary.count, 100);
  EXPECT_EQ(summary.mean, 50.5);
  EXPECT_NEAR(summary.std, 28.866, 1e-3);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.p50, 50);
  EXPECT_EQ(summary.p90, 90);
  EXPECT_EQ(summary.p95, 95);
  EXPECT_EQ(summary.p99, 99);
  EXPECT_EQ(summary.max, 100);

  const Summary equal = Summarize(std::vector<double>(100, 7));
  EXPECT_EQ(equal.count, 100);
  EXPECT_EQ(equal.p50, 7);
  EXPECT_EQ(equal.max, 7);
  EXPECT_EQ(equal.std, 0);
}

TEST(Summarize, C112_OrdersItsPercentiles) {
  for (int n = 1; n <= 50; ++n) {
    const Summary s = Summarize(OneTo(n));
    EXPECT_LE(s.min, s.p50);
    EXPECT_LE(s.p50, s.p90);
    EXPECT_LE(s.p90, s.p95);
    EXPECT_LE(s.p95, s.p99);
    EXPECT_LE(s.p99, s.max);
  }
  EXPECT_EQ(Summarize({}).count, 0);
  EXPECT_EQ(Summarize({}).mean, 0) << "not NaN";
}

}  // namespace
}  // namespace quire::cli::bench
