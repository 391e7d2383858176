#include "scheduler/waiting_queue.h"

#include "base/check.h"

namespace quire::scheduler {

void WaitingQueue::Insert(Sequence* sequence) {
  if (tells_clients_apart_ && !sequence->resuming) {
    const Iterator head = set_.lower_bound(FirstNewOf{sequence->priority});
    const bool is_class_empty = head == set_.end() || (*head)->priority != sequence->priority;
    sequence->turn = shares_.Enter(sequence->priority, sequence->client_id, sequence->num_tokens(),
                                   is_class_empty ? 0 : (*head)->turn.round + 1);
  }
  const bool inserted = set_.insert(sequence).second;
  QUIRE_CHECK(inserted) << "sequence " << sequence->id.value() << " is queued twice";
  arrivals_.emplace(sequence->arrival, sequence->id);
  num_branches_ += sequence->num_branches();
  num_tokens_ += sequence->num_tokens();
}

void WaitingQueue::Erase(Sequence* sequence) { Erase(set_.find(sequence)); }

WaitingQueue::Iterator WaitingQueue::Erase(Iterator position) {
  QUIRE_CHECK(position != set_.end());
  const Sequence& sequence = **position;
  if (tells_clients_apart_ && !sequence.resuming) {
    shares_.Leave(sequence.priority, sequence.client_id);
  }
  arrivals_.erase({sequence.arrival, sequence.id});
  num_branches_ -= sequence.num_branches();
  num_tokens_ -= sequence.num_tokens();
  return set_.erase(position);
}

}  // namespace quire::scheduler
