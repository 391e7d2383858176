// The sequences that wait to run, in the order of GoesBefore.
#pragma once

#include <cstdint>

#include "absl/container/btree_set.h"
#include "scheduler/policy.h"
#include "scheduler/sequence.h"

namespace quire::scheduler {

// Ownership: borrows the sequences. What GoesBefore looks at must not change while one is queued.
// Cost: O(log n) per call.
class WaitingQueue {
 public:
  struct Order {
    bool operator()(const Sequence* a, const Sequence* b) const { return GoesBefore(*a, *b); }
  };
  using Iterator = absl::btree_set<Sequence*, Order>::const_iterator;

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

 private:
  absl::btree_set<Sequence*, Order> set_;
  std::int32_t num_branches_ = 0;
  std::int64_t num_tokens_ = 0;
};

}  // namespace quire::scheduler
