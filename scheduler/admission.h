// Chooses which waiting sequences start to run in a step.
//
// The queue is walked in its order. A sequence starts if its branches have running slots and the
// pool can give blocks for all of its known tokens and still keep the watermark; the watermark is
// waived while nothing runs, so an idle engine can always admit. A sequence that does not fit may
// be passed by later, smaller ones, a bounded number of times; from then on nothing passes it, so
// that what the running ones give back collects until it fits. Nothing at all passes a preempted
// one: its client has seen tokens and waits for more.
#pragma once

#include <cstdint>
#include <vector>

#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence_store.h"

namespace quire::scheduler {

class AdmissionControl {
 public:
  AdmissionControl(const SchedulerOptions& options, block_manager::BlockManager* blocks,
                   SequenceStore* store);

  // Starts a walk through the queue.
  void BeginStep();
  // Starts the next sequence that fits and returns it, with its blocks; null if there is none in
  // this step.
  Sequence* AdmitNext();

 private:
  // How many sequences one step's walk may leave behind: bounds its cost.
  static constexpr std::size_t kMaxPassedPerStep = 16;

  bool TryAdmit(Sequence* sequence);
  std::int64_t BlocksToKeep() const;

  const std::int32_t max_num_seqs_;
  const std::int32_t max_overtakes_;
  const std::int64_t watermark_blocks_;
  block_manager::BlockManager* blocks_;
  SequenceStore* store_;
  WaitingQueue::Iterator next_;
  std::vector<Sequence*> passed_;  // In this step.
};

}  // namespace quire::scheduler
