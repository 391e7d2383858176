#include "scheduler/admission.h"

#include <cmath>

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

Sequence* AdmissionControl::AdmitNext(std::vector<Sequence*>* outgrown) {
  while (next_ != store_->waiting().end() && passed_.size() <= kMaxPassedPerStep) {
    // Every sequence takes a slot and at least one block.
    if (store_->running_slots() >= max_num_seqs_) return nullptr;
    if (blocks_->num_available() <= BlocksToKeep()) return nullptr;

    Sequence* const sequence = *next_;
    switch (TryAdmit(sequence)) {
      case Verdict::kNow:
        for (Sequence* passed : passed_) ++passed->times_overtaken;
        next_ = store_->Start(next_);
        return sequence;
      case Verdict::kNotNow:
        if (sequence->times_overtaken >= max_overtakes_) return nullptr;
        passed_.push_back(sequence);
        break;
      case Verdict::kNever:
        outgrown->push_back(sequence);
        break;
    }
    ++next_;
  }
  return nullptr;
}

Verdict AdmissionControl::TryAdmit(Sequence* sequence) {
  if (sequence->num_branches() > max_num_seqs_ - store_->running_slots()) return Verdict::kNotNow;
  return blocks_->Admit(
      &sequence->blocks, sequence->tokens,
      {.use_prefix_cache = !sequence->bypass_prefix_cache, .keep_available = BlocksToKeep()});
}

std::int64_t AdmissionControl::BlocksToKeep() const {
  return store_->running().empty() ? 0 : watermark_blocks_;
}

}  // namespace quire::scheduler
