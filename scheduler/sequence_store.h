// All live sequences and where each of them is: waiting or running.
//
//   Add -> waiting -> Start -> running -> Remove
//             ^------ Requeue <---'
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "scheduler/sequence.h"
#include "scheduler/waiting_queue.h"

namespace quire::scheduler {

// Ownership: owns the sequences; pointers are valid until Remove.
// Invariants: (1) a sequence is in the waiting queue or in the running list. (2) A waiting one has
// no blocks. (3) running_slots() is the number of branches of the running ones.
class SequenceStore {
 public:
  // See WaitingQueue.
  explicit SequenceStore(std::int32_t client_quantum) : waiting_(client_quantum) {}

  // Queues a new sequence.
  Sequence* Add(std::unique_ptr<Sequence> sequence);
  // Lets a pending fork of `parent`, which is running, run by itself.
  Sequence* StartFork(Sequence* parent, std::unique_ptr<Sequence> fork);
  // A pending fork will never run.
  void DropFork(Sequence* parent, SequenceId fork);

  // Moves the waiting sequence at `position` to the end of the running list; returns the iterator
  // to the next waiting one.
  WaitingQueue::Iterator Start(WaitingQueue::Iterator position);
  // Moves a running sequence back to the queue. REQUIRES: its blocks are released.
  void Requeue(Sequence* sequence);
  // Destroys a sequence with its pending forks; its blocks go back.
  void Remove(Sequence* sequence);

  // By its id or that of a pending fork of it; null if there is none.
  Sequence* Find(SequenceId id) const;
  // The most senior of all, running or waiting; null if there is none.
  Sequence* MostSenior() const;

  bool empty() const { return sequences_.empty(); }
  std::span<Sequence* const> running() const { return running_; }  // As admitted.
  const WaitingQueue& waiting() const { return waiting_; }
  std::int32_t running_slots() const { return running_slots_; }

  bool has_deadlines() const { return !deadlines_.empty(); }
  absl::Time next_deadline() const {
    return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
  }
  // One of the sequences whose deadline is next. REQUIRES: has_deadlines().
  Sequence* NextToExpire() const { return Find(deadlines_.begin()->second); }

  absl::Status Audit() const;

 private:
  void Register(std::unique_ptr<Sequence> sequence);
  void EraseRunning(Sequence* sequence);

  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  absl::flat_hash_map<SequenceId, Sequence*> fork_parents_;  // Of pending forks.
  std::vector<Sequence*> running_;
  WaitingQueue waiting_;
  std::int32_t running_slots_ = 0;
  absl::btree_set<std::pair<absl::Time, SequenceId>> deadlines_;  // The finite ones.
};

}  // namespace quire::scheduler
