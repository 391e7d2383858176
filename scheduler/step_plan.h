// What one step does, and what came of it: the only data that passes between the scheduler and the
// engine loop. Counts and token ids, never floats.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "block_manager/copy_order.h"

namespace quire::scheduler {

// Why the scheduler itself ended a sequence.
enum class TerminalReason {
  kKvCapacity,        // Outgrew the whole pool: LENGTH with detail kv_capacity.
  kDeadlineExceeded,  // Waiting or running past its deadline.
  kNoProgress,        // Forward-progress guard: a bug, reported as RESOURCE_EXHAUSTED.
};

// Tokens [first_token, first_token + num_tokens) of a sequence are computed in this step.
struct ScheduledSequence {
  SequenceId id;
  std::int32_t first_token = 0;
  std::int32_t num_tokens = 0;
  // The last of these tokens is the sequence's last known one, so a new token is sampled. While it
  // is false the chunk is a middle one and yields no token.
  bool samples = false;
  std::int32_t first_position = 0;  // Position of the table's first slot (sliding windows).
  // Views into the scheduler's state, valid until Apply().
  std::span<const TokenId> tokens;       // All known tokens: prompt, then output.
  std::span<const BlockId> block_table;  // Covers first_position .. first_token + num_tokens.
  // Branches that fork from this sequence when its prompt is complete: filled only in the step with
  // `samples` that ends the first prefill. The engine samples one token for this sequence and one
  // for each of these, from the same logits row.
  std::span<const SequenceId> forks;
};

using BlockCopyOrder = block_manager::CopyOrder;

// Reported once per queued sequence, in the step in which it is scheduled for the first time; forks
// start with their parent's tokens and are not reported.
struct Admission {
  SequenceId id;
  std::int32_t num_cached_tokens = 0;
};

// One for each branch: forks that have not forked yet end with their parent.
struct Termination {
  SequenceId id;
  TerminalReason reason;
};

struct StepPlan {
  std::vector<ScheduledSequence> scheduled;  // Decodes first, then prefills.
  std::vector<BlockCopyOrder> copies;        // Executed before anything is written.
  std::vector<Admission> admitted;
  std::vector<SequenceId> preempted;
  std::vector<Termination> terminated;  // Their blocks are back already.
  std::int32_t num_tokens = 0;
  bool empty() const { return scheduled.empty(); }
};

// What the engine made of one sampling sequence (or one fork of it).
struct SequenceResult {
  SequenceId id;
  std::vector<TokenId> new_tokens;  // 1 for plain decoding; several only with drafts; may be empty
                                    // if finished.
  bool finished = false;            // Stop, length or error: release it.
  bool failed = false;  // Finished by an error: what it computed is no turn to continue.
};

struct StepResult {
  // One entry for each sequence of the plan with `samples`, and one for each of its forks; fastest
  // in the plan's order. A failed step has no result: see Scheduler::Abandon.
  std::vector<SequenceResult> sequences;
};

}  // namespace quire::scheduler
