// Decides, step by step, which sequences compute how many tokens: continuous batching under one
// token budget, chunked prefill, admission by real need, prefix hits, preemption by recompute.
//
// A step is: Schedule(now) -> the engine computes it -> Apply(result). Cancel and Add may come
// between an Apply and the next Schedule.
//
// Ownership: owns the sequences; borrows the BlockManager, which must outlive it.
// Thread: the engine thread only. No I/O, no threads, no clock of its own: Schedule is a
// deterministic function of the state and `now`.
// Invariants: (1) a sequence is waiting or running; only running ones hold blocks. (2) The tokens
// of a plan never exceed the budget. (3) A plan is empty only if no work exists or everything that
// is left has been terminated in it (forward progress).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "block_manager/block_manager.h"
#include "scheduler/step_plan.h"

namespace quire::scheduler {

enum class Policy { kFcfs, kPriority };

struct SchedulerOptions {
  std::int32_t max_num_seqs = 64;
  std::int32_t max_num_batched_tokens = 2048;  // Token budget of a step, >= max_num_seqs.
  // At most this many prefill tokens in a step that also decodes; protects decode latency.
  std::int32_t max_prefill_tokens = 512;
  std::int32_t max_model_len = 8192;
  Policy policy = Policy::kFcfs;
  // Blocks kept free when a waiting sequence is admitted beside running ones, as a share of the
  // pool. With 1 % instead, a pool of a fifth of the full need recomputes three times as many
  // tokens (docs/simulator.md).
  double watermark = 0.05;
  // How often a waiting request may be passed by later ones before blocks are reserved for it.
  std::int32_t max_overtakes = 32;
  // How many steps a waiting request may wait for another to compute a prefix that both have.
  std::int32_t max_in_flight_steps = 256;
  // Zero, or: within a priority class, clients take turns at starting requests, each with that many
  // prompt tokens per round (deficit round robin).
  std::int32_t client_quantum = 0;
  // Zero, or: how far apart the tokens of a stream should come at most. Lowers the cap on prefill
  // tokens beside decodes below max_prefill_tokens as far as measured step times ask for it.
  absl::Duration target_itl = absl::ZeroDuration();
  // Zero, or the window of a model in which a token sees only that many tokens, itself included.
  // Blocks left of it are given back, and a prefill chunk is at most max_prefill_tokens long.
  std::int32_t sliding_window = 0;

  // Names the offending flag in its message.
  absl::Status Validate() const;

  block_manager::SlidingWindow window() const {
    return {.tokens = sliding_window,
            .max_chunk = std::min(max_prefill_tokens, max_num_batched_tokens)};
  }
};

struct NewSequence {
  SequenceId id;
  std::vector<SequenceId> forks = {};  // Further branches of the same request (n > 1).
  std::vector<TokenId> prompt = {};    // Not empty.
  // The engine finishes it at this many tokens in all, prompt included; at most max_model_len.
  std::int32_t max_total_tokens = 0;
  std::int32_t priority = 0;  // Lower is more urgent (kPriority only).
  absl::Time arrival = absl::UnixEpoch();
  absl::Time deadline = absl::InfiniteFuture();
  block_manager::CacheSalt salt = {};  // Prefixes are shared only within one salt.
  bool bypass_prefix_cache = false;    // Reads no cached prefix, but still fills the cache.
  std::string client_id = {};          // Who takes turns with whom, if client_quantum is set.
  // Zero, or: takes blocks for that many tokens when it starts, if it has fewer. For comparison
  // with engines that reserve; they must fit the pool.
  std::int32_t reserve_tokens = 0;
  // When it finishes, its blocks are leased to this session for the next turn. Branches that fork
  // from it have no part in that.
  std::optional<block_manager::SessionKey> session = std::nullopt;
};

// Why sequences wait: counts of branches.
struct WaitingBecause {
  std::int32_t slots = 0;             // Too few running slots are left.
  std::int32_t blocks = 0;            // The pool has too few blocks, or somebody was preempted.
  std::int32_t watermark = 0;         // It has them, but not beyond the watermark.
  std::int32_t prefix_in_flight = 0;  // A running sequence computes their prefix.
  std::int32_t turn = 0;              // One before them must not be passed any more.
  std::int32_t budget = 0;            // The step's tokens are spent.
  std::int32_t total() const {
    return slots + blocks + watermark + prefix_in_flight + turn + budget;
  }
  friend bool operator==(const WaitingBecause&, const WaitingBecause&) = default;
};

// Why tokens were not found in the prefix cache.
struct PrefixMisses {
  std::int64_t never_seen = 0;
  std::int64_t evicted = 0;
  std::int64_t other_salt = 0;     // Cached, but not for this salt.
  std::int64_t partial_block = 0;  // In the last block, which is never looked up.
  std::int64_t not_finished = 0;   // Another sequence was computing them.
  std::int64_t bypassed = 0;       // The cache was not asked.
  std::int64_t total() const {
    return never_seen + evicted + other_salt + partial_block + not_finished + bypassed;
  }
  friend bool operator==(const PrefixMisses&, const PrefixMisses&) = default;
};

struct SchedulerStats {
  std::int32_t num_running = 0;  // Branches; those that have not forked yet are counted, too.
  std::int32_t num_waiting = 0;
  std::int64_t num_waiting_tokens = 0;  // Known tokens of the waiting sequences.
  absl::Time oldest_waiting_arrival = absl::InfiniteFuture();
  // Of those that the last Schedule left waiting.
  WaitingBecause waiting_because = {};
  // The most prefill tokens that the next step may hold beside decodes.
  std::int32_t prefill_cap = 0;

  // Since start, as all below.
  std::int64_t num_preemptions = 0;
  std::int64_t num_preemptions_for_urgent = 0;  // Of these, so that a more urgent one could start.
  std::int64_t recomputed_tokens = 0;
  // Counted once, when a sequence starts for the first time, not per attempt.
  std::int64_t prefix_query_tokens = 0;
  std::int64_t prefix_hit_tokens = 0;
  // Of these, what others computed after the sequence had arrived, and what its session had leased.
  std::int64_t prefix_hit_tokens_in_flight = 0;
  std::int64_t prefix_hit_tokens_session = 0;
  PrefixMisses prefix_misses = {};
  // Not in prefix_hit_tokens: what preempted sequences found again, and what branches got from the
  // one that they forked from.
  std::int64_t prefix_hit_tokens_after_preemption = 0;
  std::int64_t fork_shared_tokens = 0;
  std::int64_t in_flight_waits = 0;     // Sequences that waited for a prefix in flight.
  std::int64_t in_flight_timeouts = 0;  // Of these, those that gave up.
  std::int64_t scheduled_prefill_tokens = 0;
  std::int64_t scheduled_decode_tokens = 0;
  std::int64_t no_progress_failures = 0;
  std::int64_t num_steps = 0;
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, block_manager::BlockManager* blocks);
  ~Scheduler();

  // INVALID_ARGUMENT, with both numbers, when the prompt plus one token can never fit max_model_len
  // or the pool, or more branches are asked for than can run at once. A function of the options
  // alone, so that any thread may ask at any time.
  absl::Status CheckFits(std::int64_t num_prompt_tokens, std::int32_t num_branches = 1) const;

  // Queues a sequence. REQUIRES: CheckFits passed; the ids are new.
  void Add(NewSequence sequence);

  // Removes a waiting or running sequence; its blocks are back when this returns. Unknown ids
  // (already finished) are ignored. Its forks, if not yet forked, go with it; such a fork can also
  // be cancelled alone.
  void Cancel(SequenceId id);

  // Plans the next step. The plan stays valid until Apply or Abandon.
  const StepPlan& Schedule(absl::Time now);

  // Books the outcome of the plan: appends tokens, indexes full blocks, releases finished ones.
  void Apply(const StepResult& result);

  // How long the step took that Apply has booked last. Only needed for target_itl.
  void StepTook(absl::Duration duration);

  // The step failed: releases every sequence of the plan and returns their ids (and those of forks
  // that were due), so that the engine can end them with an error.
  std::vector<SequenceId> Abandon();

  bool has_work() const;
  // The earliest deadline of any sequence; InfiniteFuture when none.
  absl::Time next_deadline() const;
  SchedulerStats stats() const;

  // For the block map. The tables are valid until the next call of a non-const method.
  struct SequenceView {
    SequenceId id;
    std::int32_t num_tokens;
    std::int32_t num_computed_tokens;
    std::span<const BlockId> block_table;
  };
  std::vector<SequenceView> RunningSequences() const;

  // Recounts everything from scratch, block manager included, and names the first thing that is
  // wrong. REQUIRES: no other scheduler uses the same block manager.
  absl::Status Audit() const;
  // Dies if Audit finds anything.
  void CheckInvariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::scheduler
