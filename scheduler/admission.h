// Chooses which waiting sequences start to run in a step.
//
// The queue is walked in its order. A sequence starts if its branches have running slots and the
// pool can give blocks for all of its known tokens and still keep the watermark; the watermark is
// waived while nothing runs, so an idle engine can always admit. A sequence that does not fit may
// be passed by later, smaller ones, a bounded number of times; from then on nothing passes it, so
// that what the running ones give back collects until it fits. Nothing at all passes a preempted
// one: its client has seen tokens and waits for more.
//
// A sequence whose next blocks a running one is computing waits for them, a bounded number of
// steps. It waits by choice, so being passed meanwhile does not count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "block_manager/block_manager.h"
#include "scheduler/prefixes_in_flight.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence_store.h"

namespace quire::scheduler {

class AdmissionControl {
 public:
  AdmissionControl(const SchedulerOptions& options, block_manager::BlockManager* blocks,
                   SequenceStore* store, SchedulerStats* stats);

  // Starts a walk through the queue; `prefills` are the running sequences that do not decode yet.
  void BeginStep(std::span<Sequence* const> prefills);
  // Starts the next sequence that fits and returns it, with its blocks; null if there is none in
  // this step.
  Sequence* AdmitNext();
  // Ends the walk: notes why those wait that it has left.
  void EndStep();

  // Starts the head of the queue, outside of a walk. REQUIRES: it fits and leaves that many blocks.
  Sequence* AdmitHead(std::int64_t keep_available);
  // Whether a waiting sequence's prefix is still being computed by the one that it waits for.
  bool AwaitsPrefix(const Sequence& sequence) const;
  // Blocks that stay available when a sequence is admitted beside running ones.
  std::int64_t watermark_blocks() const { return watermark_blocks_; }

 private:
  // How many sequences that do not fit one step's walk may leave behind, and how many it may look
  // at in all: bounds its cost.
  static constexpr std::size_t kMaxPassedPerStep = 16;
  static constexpr int kMaxVisitedPerStep = 256;

  using WaitReason = std::int32_t WaitingBecause::*;
  static constexpr WaitReason kNone = nullptr;  // It has started.

  // Why the walk can go no further, whoever comes next.
  WaitReason NothingFits() const;
  WaitReason TryAdmit(Sequence* sequence);
  bool WaitsForPrefix(Sequence* sequence);
  // Begins a wait, if there is something to wait for.
  bool FindPrefix(const Sequence& sequence, InFlightWait* wait) const;
  block_manager::Verdict TakeBlocks(Sequence* sequence, std::int64_t keep_available);
  void CountHits(Sequence* sequence, const block_manager::PrefixReport& report);
  std::int64_t BlocksToKeep() const;

  const std::int32_t max_num_seqs_;
  const std::int32_t max_overtakes_;
  const std::int32_t max_in_flight_steps_;
  const std::int64_t watermark_blocks_;
  const block_manager::SlidingWindow window_;
  block_manager::BlockManager* blocks_;
  SequenceStore* store_;
  SchedulerStats* stats_;
  PrefixesInFlight prefixes_;

  // Of this step.
  WaitingQueue::Iterator next_;
  std::vector<Sequence*> passed_;
  bool may_pass_ = true;  // None of the passed ones has been overtaken too often.
  int num_visited_ = 0;
  WaitReason rest_ = kNone;  // Why those wait that the walk has not come to.
};

}  // namespace quire::scheduler
