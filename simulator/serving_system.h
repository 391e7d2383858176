// What the simulator drives: something that takes requests and computes them step by step in a
// fixed memory. One is Quire's own scheduler and block manager; the others are the policies of
// earlier systems on the same clock.
//
// A step is: BeginStep(now), the step's time passes, EndStep(later). Add comes between an EndStep
// and the next BeginStep.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "simulator/request.h"
#include "simulator/step_time_model.h"

namespace quire::simulator {

// Something that happened to a request in a step.
struct Happening {
  enum class Kind {
    kAdmitted,    // Computed for the first time, `num_cached_tokens` of its prompt being there.
    kToken,       // A branch has a new token.
    kFinished,    // A branch has its whole answer.
    kEndedEarly,  // A branch outgrew the whole memory.
  };
  Kind kind = Kind::kToken;
  std::int32_t request = 0;
  std::int32_t num_cached_tokens = 0;
};

// Token slots.
struct MemoryUse {
  std::int64_t capacity = 0;
  std::int64_t reserved = 0;  // Held by requests, used or not; shared ones once.
  // Of these hold K and V of a live sequence; what a step is writing counts half.
  double useful = 0;
  std::int64_t unshared = 0;  // What `reserved` would be if nothing were shared.
};

struct Counters {
  std::int64_t preemptions = 0;
  std::int64_t prefill_tokens = 0;  // Computed, recomputed ones included.
  std::int64_t decode_tokens = 0;
  std::int64_t recomputed_tokens = 0;
  std::int64_t prefix_query_tokens = 0;  // At first admissions.
  std::int64_t prefix_hit_tokens = 0;
  std::int64_t hit_tokens_after_preemption = 0;
  std::int64_t copies_on_write = 0;
  friend bool operator==(const Counters&, const Counters&) = default;
};

class ServingSystem {
 public:
  virtual ~ServingSystem() = default;

  // INVALID_ARGUMENT for what can never fit.
  virtual absl::Status CheckFits(const Request& request) const = 0;
  // REQUIRES: CheckFits passed; `request` is at least as late as any before it and outlives the
  // system's work on it. `prompt` holds its tokens.
  virtual void Add(std::int32_t index, const Request& request, std::vector<TokenId> prompt,
                   absl::Time now) = 0;
  virtual bool has_work() const = 0;
  // Waiting and running branches.
  virtual std::int64_t num_waiting() const = 0;
  virtual std::int64_t num_running() const = 0;

  // Decides what the next step computes; empty if there is nothing to do. Appends what happened.
  virtual StepWork BeginStep(absl::Time now, std::vector<Happening>* happenings) = 0;
  virtual MemoryUse memory() const = 0;
  // The step is over; it took that long.
  virtual void EndStep(absl::Duration took, std::vector<Happening>* happenings) = 0;

  virtual Counters counters() const = 0;
};

}  // namespace quire::simulator
