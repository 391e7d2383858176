#include "scheduler/admission.h"

#include <cmath>

#include "base/check.h"

namespace quire::scheduler {

using block_manager::Verdict;

AdmissionControl::AdmissionControl(const SchedulerOptions& options,
                                   block_manager::BlockManager* blocks, SequenceStore* store)
    : max_num_seqs_(options.max_num_seqs),
      max_overtakes_(options.max_overtakes),
      watermark_blocks_(static_cast<std::int64_t>(
          std::ceil(options.watermark * static_cast<double>(blocks->capacity())))),
      blocks_(blocks),
      store_(store) {}

void AdmissionControl::BeginStep() {
  next_ = store_->waiting().begin();
  passed_.clear();
}

Sequence* AdmissionControl::AdmitNext() {
  for (; next_ != store_->waiting().end() && passed_.size() < kMaxPassedPerStep; ++next_) {
    // Every sequence takes a slot and at least one block.
    if (store_->running_slots() >= max_num_seqs_) return nullptr;
    if (blocks_->num_available() <= BlocksToKeep()) return nullptr;

    Sequence* const sequence = *next_;
    if (TryAdmit(sequence)) {
      for (Sequence* passed : passed_) ++passed->times_overtaken;
      next_ = store_->Start(next_);
      return sequence;
    }
    if (sequence->resuming || sequence->times_overtaken >= max_overtakes_) return nullptr;
    passed_.push_back(sequence);
  }
  return nullptr;
}

bool AdmissionControl::TryAdmit(Sequence* sequence) {
  if (sequence->num_branches() > max_num_seqs_ - store_->running_slots()) return false;
  const Verdict verdict = blocks_->Admit(
      &sequence->blocks, sequence->tokens,
      {.use_prefix_cache = !sequence->bypass_prefix_cache, .keep_available = BlocksToKeep()});
  // A sequence fits the pool when it is added, and is ended, not preempted, when it no longer does.
  QUIRE_DCHECK(verdict != Verdict::kNever) << "sequence " << sequence->id.value();
  return verdict == Verdict::kNow;
}

std::int64_t AdmissionControl::BlocksToKeep() const {
  return store_->running().empty() ? 0 : watermark_blocks_;
}

}  // namespace quire::scheduler
