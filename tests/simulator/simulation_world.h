// Small simulations by hand: requests of given lengths, and steps whose times are easy to add up.
#pragma once

#include <vector>

#include "simulator/random.h"
#include "simulator/simulation.h"
#include "simulator/system_factory.h"

namespace quire::simulator {

// 1 s a step, 0.1 s a prefill token, 0.01 s a sequence that decodes.
inline constexpr StepTimeModel kSimpleSteps{1, 0.1, 0.01, 0};
// 1 s a step, whatever it does.
inline constexpr StepTimeModel kEvenSteps{1, 0, 0, 0};

// Requests made by this share nothing with each other.
inline Request MakeRequest(std::int32_t prompt_len, std::int32_t output_len, double arrival_s = 0) {
  static std::uint64_t next = 0;
  ++next;
  return {.arrival = absl::Seconds(arrival_s),
          .prompt = {{.stream = TokenStreamId(99, RandomUse::kPromptStream, next),
                      .length = prompt_len}},
          .output_len = output_len,
          .output_stream = TokenStreamId(99, RandomUse::kOutputStream, next)};
}

inline SystemOptions SmallSystem(SystemKind kind, std::int64_t num_slots,
                                 std::int32_t block_size = 4) {
  SystemOptions options{.kind = kind, .num_slots = num_slots, .block_size = block_size};
  options.scheduler.watermark = 0;
  return options;
}

inline SimulationResult RunSystem(const SystemOptions& system, std::vector<Request> requests,
                                  const SimulationOptions& options = {.step_time = kEvenSteps}) {
  return Simulate(options, requests, [&] { return MakeSystem(system); });
}

}  // namespace quire::simulator
