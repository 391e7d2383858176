#include "simulator/rate_search.h"

#include <algorithm>
#include <cmath>

namespace quire::simulator {

double HighestRate(const RateSearchOptions& search, const SystemOptions& system,
                   WorkloadOptions workload, const SimulationOptions& simulation) {
  constexpr double kFewest = 20, kMost = 1e6;  // Requests.
  const auto takes = [&](double rate) {
    workload.request_rate = rate;
    workload.num_requests = static_cast<std::int32_t>(
        std::clamp(rate * absl::ToDoubleSeconds(search.duration), kFewest, kMost));
    const std::vector<Request> requests = MakeWorkload(workload);
    const SimulationResult result =
        Simulate(simulation, requests, [&] { return MakeSystem(system); });
    return result.MeanNormalizedLatency(requests) <= search.max_normalized_latency_s;
  };
  constexpr double kLowest = 1e-3, kHighest = 1e6;
  double low = 1, high = 1;
  if (takes(1)) {
    do {
      low = high;
      high *= 2;
    } while (high < kHighest && takes(high));
  } else {
    do {
      high = low;
      low /= 2;
    } while (low >= kLowest && !takes(low));
    if (low < kLowest) return 0;
  }
  while (high / low > search.precision) {
    const double middle = std::sqrt(low * high);
    (takes(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace quire::simulator
