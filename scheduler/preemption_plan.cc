#include "scheduler/preemption_plan.h"

#include <algorithm>

#include "scheduler/policy.h"

namespace quire::scheduler {

bool PreemptionPlan::Find(const Sequence& urgent, const Situation& situation) {
  FindCandidates(urgent, situation.running);
  if (victims_.empty()) return false;

  keep_available_ = situation.watermark_blocks;
  for (const Sequence* sequence : situation.running) keep_available_ += DemandOf(*sequence);
  const BlockNeed need = NeedOf(urgent, window_, *blocks_);
  std::int64_t available = blocks_->num_available();
  std::int32_t slots = situation.free_slots;
  const auto fits = [&] {
    return need.num_blocks + keep_available_ <= available && urgent.num_branches() <= slots;
  };

  shares_.clear();
  std::size_t count = 0;
  for (; count < victims_.size() && !fits(); ++count) {
    const Sequence& victim = *victims_[count];
    available += Gain(victim, need);
    slots += victim.num_branches();
    keep_available_ -= DemandOf(victim);
    if (count + 1 == situation.running.size()) keep_available_ -= situation.watermark_blocks;
  }
  victims_.resize(count);
  return count > 0 && fits();
}

void PreemptionPlan::FindCandidates(const Sequence& urgent, std::span<Sequence* const> running) {
  victims_.clear();
  for (Sequence* sequence : running) {
    if (sequence->priority > urgent.priority && !sequence->resuming) victims_.push_back(sequence);
  }
  std::ranges::sort(victims_,
                    [](const Sequence* a, const Sequence* b) { return IsBetterVictim(*a, *b); });
}

// Of this sequence alone: branches that share the block they write to need fewer together.
std::int64_t PreemptionPlan::DemandOf(const Sequence& sequence) {
  if (!sequence.AsksForBlocks(window_)) return 0;
  demand_.Clear();
  demand_.Add(sequence.blocks, sequence.NextEnd(window_));
  return demand_.num_blocks();
}

// How many blocks become available for others than the urgent sequence when `victim` goes after the
// victims before it: those that it alone still owns, but not those that the urgent one hits.
std::int64_t PreemptionPlan::Gain(const Sequence& victim, const BlockNeed& need) {
  const block_manager::BlockTable& table = victim.blocks.table();
  const std::int32_t first_ordinal = table.first_position() / table.block_size();
  std::int64_t gain = 0;
  for (std::int32_t i = 0; i < table.size(); ++i) {
    const BlockId id = table[i];
    const std::int32_t owners = blocks_->owners(id);
    if (owners > 1 && ++shares_[id] < owners) continue;
    const auto ordinal = static_cast<std::size_t>(first_ordinal + i);
    const bool is_hit = ordinal < need.hits.size() && need.hits[ordinal] == id;
    if (!is_hit) ++gain;
  }
  return gain;
}

}  // namespace quire::scheduler
