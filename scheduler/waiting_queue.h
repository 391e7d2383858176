// The sequences that wait to run, in the order of GoesBefore.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "scheduler/fair_share.h"
#include "scheduler/policy.h"
#include "scheduler/sequence.h"

namespace quire::scheduler {

// Ownership: borrows the sequences. What GoesBefore looks at must not change while one is queued.
// Cost: O(log n) per call.
class WaitingQueue {
 public:
  // Before all sequences of a priority class that have never run.
  struct FirstNewOf {
    std::int32_t priority;
  };
  struct Order {
    using is_transparent = void;
    bool operator()(const Sequence* a, const Sequence* b) const { return GoesBefore(*a, *b); }
    bool operator()(const Sequence* a, FirstNewOf b) const {
      return a->priority < b.priority || (a->priority == b.priority && a->resuming);
    }
  };
  using Iterator = absl::btree_set<Sequence*, Order>::const_iterator;

  // The quantum of FairShare, in prompt tokens; with zero, clients are not told apart.
  explicit WaitingQueue(std::int32_t client_quantum)
      : tells_clients_apart_(client_quantum > 0), shares_(client_quantum) {}

  // Gives a sequence that has not run yet its turn.
  void Insert(Sequence* sequence);
  void Erase(Sequence* sequence);
  // Returns the iterator to the next one. Invalidates all others.
  Iterator Erase(Iterator position);
  // One of a queued sequence's pending forks is gone.
  void ForgetFork() { --num_branches_; }

  Iterator begin() const { return set_.begin(); }
  Iterator end() const { return set_.end(); }
  bool empty() const { return set_.empty(); }
  bool contains(Sequence* sequence) const { return set_.contains(sequence); }
  std::size_t size() const { return set_.size(); }
  std::int32_t num_branches() const { return num_branches_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  std::size_t num_clients() const { return shares_.num_clients(); }
  // Of all that wait; InfiniteFuture if nobody does.
  absl::Time oldest_arrival() const {
    return arrivals_.empty() ? absl::InfiniteFuture() : arrivals_.begin()->first;
  }

 private:
  const bool tells_clients_apart_;
  FairShare shares_;  // Of the sequences that have not run yet.
  absl::btree_set<Sequence*, Order> set_;
  absl::btree_set<std::pair<absl::Time, SequenceId>> arrivals_;
  std::int32_t num_branches_ = 0;
  std::int64_t num_tokens_ = 0;
};

}  // namespace quire::scheduler
