// A small world that can be explored exhaustively: the real Scheduler and BlockManager on the
// scripted engine, moved by one action at a time, with everything that must hold checked after
// each.
//
// The scheduler cannot be copied, so a state is reached by doing its actions again in a new world.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"
#include "tests/fakes/scripted_engine.h"

namespace quire::scheduler {

struct SmallRequest {
  std::vector<TokenId> prompt;
  std::int32_t max_outputs = 2;  // It may finish with any token; with this one it has to.
  std::int32_t num_branches = 1;
  std::int32_t priority = 0;
  bool has_deadline = false;
  std::string salt = "";
  bool bypass_prefix_cache = false;
};

struct SmallWorld {
  std::string name;
  block_manager::BlockManagerOptions blocks;
  SchedulerOptions scheduler;
  std::vector<SmallRequest> requests;
  bool steps_may_fail = false;
  bool cache_may_be_reset = false;
};

struct Action {
  enum class Kind : std::uint8_t {
    kArrive,      // Of request `argument`.
    kCancel,      // Of branch `argument`.
    kDeadline,    // The next deadline passes.
    kStep,        // Bit i of `argument`: whether the i-th branch that has the choice finishes.
    kFailedStep,  // The engine abandons the step.
    kReset,       // Of the prefix cache.
  };
  Kind kind = Kind::kStep;
  std::uint8_t argument = 0;
};
std::string Name(const Action& action);

// How often something has happened.
struct Happenings {
  std::int64_t preemptions = 0, hits = 0, hits_after_preemption = 0, evictions = 0;
  std::int64_t copies_on_write = 0, outgrown = 0, expired = 0, overtakings = 0;
};

class ExploredWorld {
 public:
  explicit ExploredWorld(const SmallWorld& world);

  // Names the first rule that the action broke.
  absl::Status Do(const Action& action);

  // What can happen next, kStep only with argument 0.
  std::vector<Action> NextActions() const;
  // How many branches had the choice to finish or not in the last kStep.
  int num_choices() const { return num_choices_; }
  bool drained() const { return !scheduler_.has_work(); }
  Happenings happenings() const;

  // Equal for two states iff they go on alike: block ids, which do not matter, are replaced by the
  // order in which they are seen, cached blocks by their content in the order of their eviction.
  // Looking at that order takes it apart: nothing can be done afterwards.
  std::string TakeDigest();

 private:
  struct Branch {
    SequenceId id;
    std::int32_t request = 0;
    std::int32_t index = 0;  // In the request.
    std::int64_t arrival = 0;
    absl::Time deadline = absl::InfiniteFuture();
    std::int32_t num_outputs = 0;
    std::int32_t times_overtaken = 0;
    bool running = false;
    bool admitted = false;
    bool decoding = false;  // Has yielded a token since it was admitted last.
    bool resuming = false;  // Was preempted and has not yielded a token since.
  };

  absl::Status Arrive(std::int32_t request);
  absl::Status Cancel(SequenceId id);
  absl::Status Step(std::uint32_t finish_mask);
  absl::Status FailStep();
  absl::Status End(SequenceId id);
  absl::Status BookPlan(const StepPlan& plan);
  absl::Status BookTermination(const Termination& termination);
  absl::Status BookPreemption(SequenceId id);
  absl::Status BookOvertaking(const std::vector<SequenceId>& waiting);
  absl::Status BookToken(const SequenceResult& result);
  void BookContents(const StepPlan& plan);
  void BookWhoRuns();
  absl::Status CheckAll() const;

  const SmallRequest& RequestOf(const Branch& branch) const {
    return world_.requests[static_cast<std::size_t>(branch.request)];
  }
  std::int32_t PriorityOf(const Branch& branch) const;
  bool GoesBefore(const Branch& a, const Branch& b) const;
  std::optional<SequenceId> MostSeniorRunning() const;
  bool MayAwaitAPrefix(const Branch& branch) const;
  bool IsPendingFork(const Branch& branch) const {
    return branch.index > 0 && branch.num_outputs == 0;
  }
  std::vector<std::uint64_t> CachedContentsOldestFirst();

  const SmallWorld& world_;
  block_manager::BlockManager blocks_;
  Scheduler scheduler_;
  fakes::ScriptedEngine engine_;
  absl::Time now_ = absl::UnixEpoch();
  std::int64_t num_arrivals_ = 0;
  std::uint32_t arrived_ = 0;            // Bit per request.
  std::map<SequenceId, Branch> live_;    // Arrived and not ended.
  std::map<SequenceId, int> num_ends_;   // Of all that have arrived.
  std::vector<std::uint64_t> contents_;  // [capacity] of full blocks, everything before included.
  int num_choices_ = 0;
  Happenings happenings_;
};

}  // namespace quire::scheduler
