// The load a system can take: the paper's measure of throughput at equal latency.
#pragma once

#include "simulator/simulation.h"
#include "simulator/system_factory.h"
#include "simulator/workload.h"

namespace quire::simulator {

struct RateSearchOptions {
  double max_normalized_latency_s = 0.2;  // Mean seconds per token of the answer.
  // Of the arrivals: a queue that grows needs time to show.
  absl::Duration duration = absl::Minutes(10);
  double precision = 1.01;  // Ratio of the rates between which the search ends.
};

// The highest request rate (a second) at which the mean normalized latency stays within the limit,
// by bisection: the same requests come in the same rhythm, only faster or slower, and as many of
// them as the duration takes (workload.num_requests is not used). 0 if even a request in 1000
// seconds is too much.
double HighestRate(const RateSearchOptions& search, const SystemOptions& system,
                   WorkloadOptions workload, const SimulationOptions& simulation);

}  // namespace quire::simulator
