// Percentiles and means of measured samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quire::cli::bench {

// The nearest-rank percentile: the smallest sample such that at least `percent` % of all samples
// are not larger, sorted[ceil(percent / 100 * n) - 1]. It is always a sample that was measured
// (nothing is interpolated), and percent 0 is the smallest. 0 without samples.
double Percentile(std::span<const double> sorted, double percent);

struct Summary {
  std::int64_t count = 0;
  double mean = 0, std = 0;  // std: of the population, as numpy's default.
  double min = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

// Of samples in any order; all zero without samples.
Summary Summarize(std::vector<double> samples);

}  // namespace quire::cli::bench
