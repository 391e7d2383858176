#include "cli/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quire::cli::bench {

double Percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const auto count = static_cast<double>(sorted.size());
  // percent * n / 100 may miss a whole number by a rounding error; that must not move the rank.
  const double rank = std::ceil(percent * count / 100 - 1e-9);
  return sorted[static_cast<std::size_t>(std::clamp(rank, 1.0, count)) - 1];
}

Summary Summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto count = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  return {.count = static_cast<std::int64_t>(samples.size()),
          .mean = mean,
          .std = std::sqrt(squares / count),
          .min = samples.front(),
          .p50 = Percentile(samples, 50),
          .p90 = Percentile(samples, 90),
          .p95 = Percentile(samples, 95),
          .p99 = Percentile(samples, 99),
          .max = samples.back()};
}

}  // namespace quire::cli::bench
