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

#include <cstdint>
#include <memory>
#include <span>
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
  // pool.
  double watermark = 0.01;
  // How often a waiting request may be passed by later ones before blocks are reserved for it.
  std::int32_t max_overtakes = 32;

  // Names the offending flag in its message.
  absl::Status Validate() const;
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
};

struct SchedulerStats {
  std::int32_t num_running = 0;  // Branches; those that have not forked yet are counted, too.
  std::int32_t num_waiting = 0;
  std::int64_t num_waiting_tokens = 0;  // Known tokens of the waiting sequences.
  std::int64_t num_preemptions = 0;     // Since start, as all below.
  std::int64_t recomputed_tokens = 0;
  std::int64_t prefix_query_tokens = 0;  // Counted once per admission, not per attempt.
  std::int64_t prefix_hit_tokens = 0;
  std::int64_t prefix_hit_tokens_after_preemption = 0;
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
