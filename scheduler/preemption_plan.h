// Chooses whom to preempt so that a waiting sequence of a more urgent class can start at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "block_manager/block_manager.h"
#include "scheduler/block_need.h"
#include "scheduler/sequence.h"

namespace quire::scheduler {

// Plans only; whoever asks carries it out. Thrash is bounded: a victim belongs to a strictly less
// urgent class, is not resuming from an earlier preemption, and is chosen only if the urgent
// sequence can start for it.
class PreemptionPlan {
 public:
  PreemptionPlan(const block_manager::SlidingWindow& window,
                 const block_manager::BlockManager* blocks)
      : window_(window), blocks_(blocks) {}

  // Of a step in which all of `running` get the blocks that they ask for.
  struct Situation {
    std::span<Sequence* const> running;
    std::int32_t free_slots = 0;
    std::int64_t watermark_blocks = 0;  // Waived if everybody is preempted.
  };
  // False if nobody need be preempted, or it would not do.
  bool Find(const Sequence& urgent, const Situation& situation);

  // Of the plan found.
  std::span<Sequence* const> victims() const { return victims_; }
  // What must stay available when the urgent sequence has its blocks: the watermark, and what the
  // remaining ones will take.
  std::int64_t keep_available() const { return keep_available_; }

 private:
  void FindCandidates(const Sequence& urgent, std::span<Sequence* const> running);
  std::int64_t DemandOf(const Sequence& sequence);
  std::int64_t Gain(const Sequence& victim, const BlockNeed& need);

  const block_manager::SlidingWindow window_;
  const block_manager::BlockManager* blocks_;
  std::vector<Sequence*> victims_;
  std::int64_t keep_available_ = 0;
  block_manager::ExtendDemand demand_{blocks_};
  absl::flat_hash_map<BlockId, std::int32_t> shares_;  // Of the victims, in shared blocks.
};

}  // namespace quire::scheduler
