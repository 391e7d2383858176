#include "engine/stats.h"

#include <algorithm>
#include <utility>

namespace quire::engine {

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  ++counts[static_cast<std::size_t>(bucket)];
  sum += value;
  ++count;
}

Histogram MakeHistogram(std::vector<double> bounds) {
  Histogram histogram;
  histogram.counts.resize(bounds.size() + 1);
  histogram.bounds = std::move(bounds);
  return histogram;
}

}  // namespace quire::engine
