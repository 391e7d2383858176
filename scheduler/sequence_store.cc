#include "scheduler/sequence_store.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace quire::scheduler {

void SequenceStore::Register(std::unique_ptr<Sequence> sequence) {
  Sequence* const raw = sequence.get();
  QUIRE_CHECK(Find(raw->id) == nullptr) << "sequence id " << raw->id.value() << " is in use";
  for (const SequenceId fork : raw->pending_forks) fork_parents_.emplace(fork, raw);
  if (raw->deadline < absl::InfiniteFuture()) deadlines_.emplace(raw->deadline, raw->id);
  sequences_.emplace(raw->id, std::move(sequence));
}

Sequence* SequenceStore::Add(std::unique_ptr<Sequence> sequence) {
  Sequence* const raw = sequence.get();
  Register(std::move(sequence));
  waiting_.Insert(raw);
  return raw;
}

Sequence* SequenceStore::StartFork(Sequence* parent, std::unique_ptr<Sequence> fork) {
  Sequence* const raw = fork.get();
  DropFork(parent, raw->id);
  Register(std::move(fork));
  raw->running = true;
  running_.push_back(raw);
  ++running_slots_;
  return raw;
}

void SequenceStore::DropFork(Sequence* parent, SequenceId fork) {
  const auto erased = std::erase(parent->pending_forks, fork);
  QUIRE_CHECK(erased == 1) << "sequence " << fork.value() << " is no pending fork";
  fork_parents_.erase(fork);
  if (parent->running) {
    --running_slots_;
  } else {
    waiting_.ForgetFork();
  }
}

WaitingQueue::Iterator SequenceStore::Start(WaitingQueue::Iterator position) {
  Sequence* const sequence = *position;
  sequence->running = true;
  running_.push_back(sequence);
  running_slots_ += sequence->num_branches();
  return waiting_.Erase(position);
}

void SequenceStore::Requeue(Sequence* sequence) {
  QUIRE_DCHECK(sequence->blocks.table().empty());
  EraseRunning(sequence);
  waiting_.Insert(sequence);
}

void SequenceStore::Remove(Sequence* sequence) {
  if (sequence->running) {
    EraseRunning(sequence);
  } else {
    waiting_.Erase(sequence);
  }
  for (const SequenceId fork : sequence->pending_forks) fork_parents_.erase(fork);
  deadlines_.erase({sequence->deadline, sequence->id});
  sequences_.erase(sequence->id);
}

void SequenceStore::EraseRunning(Sequence* sequence) {
  const auto position = std::ranges::find(running_, sequence);
  QUIRE_CHECK(position != running_.end());
  running_.erase(position);
  sequence->running = false;
  running_slots_ -= sequence->num_branches();
}

Sequence* SequenceStore::Find(SequenceId id) const {
  if (const auto found = sequences_.find(id); found != sequences_.end()) {
    return found->second.get();
  }
  const auto found = fork_parents_.find(id);
  return found == fork_parents_.end() ? nullptr : found->second;
}

Sequence* SequenceStore::MostSenior() const {
  Sequence* senior = nullptr;
  for (const auto& [id, sequence] : sequences_) {
    if (senior == nullptr || IsSeniorTo(*sequence, *senior)) senior = sequence.get();
  }
  return senior;
}

absl::Status SequenceStore::Audit() const {
  std::int64_t slots = 0, waiting_tokens = 0, waiting_branches = 0;
  std::size_t forks = 0, deadlines = 0, running = 0;
  for (const auto& [id, sequence] : sequences_) {
    const bool in_running = std::ranges::count(running_, sequence.get()) == 1;
    const bool in_waiting = waiting_.contains(sequence.get());
    if (sequence->id != id || in_running != sequence->running || in_waiting == in_running) {
      return Internal("sequence {} is not exactly one of waiting and running", id.value());
    }
    if (in_running) {
      ++running;
      slots += sequence->num_branches();
    } else {
      waiting_tokens += sequence->num_tokens();
      waiting_branches += sequence->num_branches();
      if (!sequence->blocks.table().empty()) {
        return Internal("waiting sequence {} holds blocks", id.value());
      }
    }
    if (sequence->decoding && !sequence->pending_forks.empty()) {
      return Internal("decoding sequence {} has forks to come", id.value());
    }
    for (const SequenceId fork : sequence->pending_forks) {
      ++forks;
      if (Find(fork) != sequence.get()) return Internal("fork {} is lost", fork.value());
    }
    if (sequence->deadline < absl::InfiniteFuture()) {
      ++deadlines;
      if (!deadlines_.contains({sequence->deadline, id})) {
        return Internal("the deadline of sequence {} is lost", id.value());
      }
    }
  }
  if (running != running_.size() || slots != running_slots_) {
    return Internal("{} sequences run in {} slots, not {} in {}", running, slots, running_.size(),
                    running_slots_);
  }
  if (sequences_.size() - running != waiting_.size() || waiting_tokens != waiting_.num_tokens() ||
      waiting_branches != waiting_.num_branches()) {
    return Internal("the waiting queue miscounts");
  }
  if (waiting_.empty() && waiting_.num_clients() > 0) {
    return Internal("{} clients are remembered, but nobody waits", waiting_.num_clients());
  }
  if (forks != fork_parents_.size() || deadlines != deadlines_.size()) {
    return Internal("{} forks and {} deadlines, not {} and {}", forks, deadlines,
                    fork_parents_.size(), deadlines_.size());
  }
  return absl::OkStatus();
}

}  // namespace quire::scheduler
