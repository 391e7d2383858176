#include "scheduler/waiting_queue.h"

#include "base/check.h"

namespace quire::scheduler {

void WaitingQueue::Insert(Sequence* sequence) {
  const bool inserted = set_.insert(sequence).second;
  QUIRE_CHECK(inserted) << "sequence " << sequence->id.value() << " is queued twice";
  num_branches_ += sequence->num_branches();
  num_tokens_ += sequence->num_tokens();
}

void WaitingQueue::Erase(Sequence* sequence) { Erase(set_.find(sequence)); }

WaitingQueue::Iterator WaitingQueue::Erase(Iterator position) {
  QUIRE_CHECK(position != set_.end());
  num_branches_ -= (*position)->num_branches();
  num_tokens_ -= (*position)->num_tokens();
  return set_.erase(position);
}

}  // namespace quire::scheduler
