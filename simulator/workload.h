// Workloads: who asks for how much, when, and who shares which prefix with whom. Pure functions of
// their options.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "simulator/request.h"

namespace quire::simulator {

// Lognormal with this mean (before clipping) and this sigma of the logarithm; sigma 0: always
// `mean`.
struct LengthDistribution {
  double mean = 128;
  double sigma = 0;
  std::int32_t min = 1;
  std::int32_t max = 1 << 20;

  // The value for a standard normal `z`.
  std::int32_t At(double z) const;
};

struct WorkloadOptions {
  // Simulated time stays far from its end.
  static constexpr double kMinRequestRate = 1e-9, kMaxRequestRate = 1e9;
  static constexpr absl::Duration kMaxThinkTime = absl::Seconds(1'000'000'000);

  std::int32_t num_requests = 1000;  // Conversations, when there are several turns.
  LengthDistribution input = {};
  LengthDistribution output = {.mean = 64};
  // Prompt and answer together have at most this many tokens: first the answer gives way, then
  // the prompt, which leaves room for output.min. 0: no limit.
  std::int32_t max_total_len = 0;
  double request_rate = 0;  // Poisson arrivals a second; 0: all come at the start.
  std::int32_t num_branches = 1;
  // Each prompt starts with one of so many common prefixes, chosen evenly; 0: nothing is shared.
  std::int32_t num_prefixes = 0;
  std::int32_t prefix_len = 0;
  // Each conversation has so many requests; a later one's prompt is the whole text so far and a
  // new input, and comes after a think time (exponential, with this mean). One that would
  // outgrow max_total_len ends the conversation.
  std::int32_t num_turns = 1;
  absl::Duration mean_think_time = absl::ZeroDuration();
  std::uint64_t seed = 0;

  absl::Status Validate() const;
};

// Shapes of the paper's two data sets (Kwon et al., SOSP 2023, figure 11): lognormal with its
// means, sigma 1.0 for prompts and 0.8 for answers, clipped to 4..2048, and both together at most
// 2048, which is the context of OPT.
WorkloadOptions ShareGptShape();
WorkloadOptions AlpacaShape();

// REQUIRES: options.Validate().ok().
std::vector<Request> MakeWorkload(const WorkloadOptions& options);

}  // namespace quire::simulator
