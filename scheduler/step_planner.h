// Makes the plan of one step: ends what is over, makes room, hands out the token budget.
//
// Blocks are settled before any work is booked: victims are chosen until all decodes fit, and only
// then is anything scheduled, so nothing is ever undone within a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "block_manager/block_manager.h"
#include "scheduler/admission.h"
#include "scheduler/preemption_plan.h"
#include "scheduler/prefill_cap.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence_store.h"
#include "scheduler/step_plan.h"

namespace quire::scheduler {

class StepPlanner {
 public:
  StepPlanner(const SchedulerOptions& options, block_manager::BlockManager* blocks,
              SequenceStore* store, SchedulerStats* stats);

  // Replaces `plan`, whose vectors are used again.
  void Plan(absl::Time now, StepPlan* plan);
  // The sequences of plan->scheduled, in its order.
  std::span<Sequence* const> scheduled() const { return scheduled_; }
  // A sequence has got so many new tokens by one step.
  void Yielded(std::int32_t num_tokens) { most_yielded_ = std::max(most_yielded_, num_tokens); }
  // The most that any did: no decoding sequence has more of them to compute.
  std::int32_t most_yielded() const { return most_yielded_; }
  // How long the last planned step took.
  void StepTook(absl::Duration duration);
  std::int32_t prefill_cap() const { return prefill_cap_.tokens(); }

 private:
  void PlanOnce(absl::Time now);
  void EndExpired(absl::Time now);
  void EndOutgrown(absl::Time now);
  void MakeRoomForRunning();
  void MakeRoomForUrgent();
  void ScheduleDecodes();
  void SchedulePrefills();
  void AdmitWaiting();

  void Schedule(Sequence* sequence, std::int32_t num_tokens);
  void ScheduleChunk(Sequence* sequence);
  void ReportAdmission(Sequence* sequence);
  void Preempt(Sequence* sequence);
  void Terminate(Sequence* sequence, TerminalReason reason);

  const SchedulerOptions options_;
  const block_manager::SlidingWindow window_;
  block_manager::BlockManager* blocks_;
  SequenceStore* store_;
  SchedulerStats* stats_;
  AdmissionControl admission_;
  block_manager::ExtendDemand demand_;
  PreemptionPlan preemptions_;
  const bool may_outgrow_;  // Whether a sequence can become too long for the whole pool.
  std::int32_t most_yielded_ = 1;
  PrefillCap prefill_cap_;

  // Of the step being planned.
  StepPlan* plan_ = nullptr;
  std::int32_t token_budget_ = 0;
  std::int32_t prefill_budget_ = 0;  // At most token_budget_.
  std::int32_t num_decode_tokens_ = 0;
  std::vector<Sequence*> scheduled_;
  std::vector<Sequence*> prefills_;
  std::vector<Sequence*> outgrown_;
};

}  // namespace quire::scheduler
