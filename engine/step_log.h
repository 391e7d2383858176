// How long every step takes beside what it computes: what the step times of `quire simulate` are
// fitted to.
//
// Ownership: the runners made here own the one that they time.
// Thread: the engine thread only, as for every ModelRunner; `on_step` is called on it, too.
// Invariant: every step that succeeds is told once, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "engine/model_runner.h"

namespace quire::engine {

struct TimedStep {
  // A sequence that computes one token decodes; one that computes more prefills.
  // (Its fields are those of simulator::StepWork, which engines know nothing of.)
  std::int64_t prefill_tokens = 0, decode_sequences = 0;
  std::int64_t context_tokens = 0;  // Whose K and V are read: lengths after the step, summed.
  // Until the next step began where that followed at once, so that what happens between two steps
  // counts too.
  absl::Duration duration;
};

// A runner that passes every step on to `runner` and calls `on_step` for it, when the next one
// begins or when it is destroyed itself. `clock` must outlive it.
std::unique_ptr<ModelRunner> TimeSteps(std::unique_ptr<ModelRunner> runner, Clock& clock,
                                       std::function<void(const TimedStep&)> on_step);

// The same into the file `path`, a line of JSON for each step, in the form that `quire simulate
// --fit-steps` reads. UNAVAILABLE naming the file when it cannot be opened;
// when it cannot be written later on, the log says so once and steps go on.
absl::StatusOr<std::unique_ptr<ModelRunner>> LogSteps(std::unique_ptr<ModelRunner> runner,
                                                      Clock& clock, const std::string& path);

}  // namespace quire::engine
