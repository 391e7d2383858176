// Runs a workload on one or many replicas of a serving system, event by event, and says what came
// of every request and how the memory was used. Deterministic: no clock, no threads.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "simulator/request.h"
#include "simulator/router.h"
#include "simulator/serving_system.h"
#include "simulator/step_time_model.h"

namespace quire::simulator {

struct SimulationOptions {
  StepTimeModel step_time = StepTimeModel::Opt13bOnA100();
  std::int32_t num_replicas = 1;
  Routing routing = Routing::kRoundRobin;
  // Means are taken over the steps that begin in [measure_from, measure_until); counters, times and
  // requests over the whole run.
  absl::Duration measure_from = absl::ZeroDuration();
  absl::Duration measure_until = absl::InfiniteDuration();
  // Ends the run when more than so many requests wait in all: the load is hopeless.
  std::int64_t give_up_waiting = std::numeric_limits<std::int64_t>::max();
};

struct RequestOutcome {
  enum class End {
    kNone,        // The run was given up before.
    kFinished,    // Every branch has its whole answer.
    kEndedEarly,  // A branch outgrew the memory.
    kRefused,     // Could never fit.
  };
  End end = End::kNone;
  absl::Duration due, admitted, first_token, last_token;  // From the start of the run.
  std::int32_t replica = 0;
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;
  std::int32_t output_tokens = 0;  // Of all branches.

  double ttft_s() const { return absl::ToDoubleSeconds(first_token - due); }
  double latency_s() const { return absl::ToDoubleSeconds(last_token - due); }
  double queue_s() const { return absl::ToDoubleSeconds(admitted - due); }
};

// A look at the first replica in a step.
struct TimelinePoint {
  double seconds = 0;
  std::int64_t num_sequences = 0, num_waiting = 0;
  MemoryUse memory;
};

struct SimulationResult {
  std::vector<RequestOutcome> requests;  // By the workload's index.
  std::string first_refusal;             // Why, of the first request that was refused.
  bool given_up = false;
  absl::Duration duration = absl::ZeroDuration();  // To the end of the last step.
  std::int64_t num_steps = 0;
  double busy_s = 0;  // Time in steps, summed over the replicas.
  Counters counters;  // Summed over the replicas.
  // Means over time, in steps and within the window of SimulationOptions. The memory is what the
  // engine publishes after every step, weighted by how long it stands: until the next step is over.
  double useful_share = 0;  // Useful of the reserved slots.
  // The same in the middle of the steps: new blocks are there, what is written to counts half.
  double useful_share_inside = 0;
  double pool_useful_share = 0;  // Useful of all slots.
  double saved_by_sharing = 0;   // Share of the slots that would be reserved without sharing.
  double mean_batched = 0;       // Sequences in a step.
  std::int64_t peak_batched = 0;
  std::vector<TimelinePoint> timeline;  // At most kMaxTimeline, evenly thinned.

  static constexpr std::size_t kMaxTimeline = 1024;

  // Over the finished requests: mean of latency over tokens of a branch's answer, as in the paper.
  double MeanNormalizedLatency(std::span<const Request> workload) const;
  double RecomputeTax() const;  // Recomputed tokens over those that had to be computed once.
};

using SystemMaker = std::function<std::unique_ptr<ServingSystem>()>;

// REQUIRES: num_replicas >= 1; in `workload`, `after` names earlier requests.
SimulationResult Simulate(const SimulationOptions& options, std::span<const Request> workload,
                          const SystemMaker& make_system);

}  // namespace quire::simulator
