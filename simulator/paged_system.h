// Quire's own scheduler and block manager, the very code that serves, under the simulator. The only
// file of the simulator that knows the scheduler.
#pragma once

#include <vector>

#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"
#include "simulator/scripted_sequences.h"
#include "simulator/serving_system.h"

namespace quire::simulator {

class PagedSystem final : public ServingSystem {
 public:
  // REQUIRES: both options are valid.
  PagedSystem(const block_manager::BlockManagerOptions& blocks,
              const scheduler::SchedulerOptions& options);

  absl::Status CheckFits(const Request& request) const override;
  void Add(std::int32_t index, const Request& request, std::vector<TokenId> prompt,
           absl::Time now) override;
  bool has_work() const override { return scheduler_.has_work(); }
  std::int64_t num_waiting() const override { return scheduler_.stats().num_waiting; }
  std::int64_t num_running() const override { return scheduler_.stats().num_running; }
  StepWork BeginStep(absl::Time now, std::vector<Happening>* happenings) override;
  MemoryUse memory() const override;
  void EndStep(absl::Duration took, std::vector<Happening>* happenings) override;
  Counters counters() const override;

  block_manager::BlockStats block_stats() const { return blocks_.stats(); }

 private:
  void Answer(SequenceId id, std::vector<Happening>* happenings);

  const std::int32_t max_model_len_;
  block_manager::BlockManager blocks_;
  scheduler::Scheduler scheduler_;
  ScriptedSequences sequences_;
  const scheduler::StepPlan* plan_ = nullptr;  // Of the step that computes; null between steps.
  scheduler::StepResult result_;
};

}  // namespace quire::simulator
