// An engine without a model: runs a Scheduler's plans on a simulated KV cache and answers with
// tokens that are a pure function of the content that the block tables lead to.
//
// Each slot holds the token written to it and a digest of all tokens before it, so a plan that
// reads a wrong, stale or recycled block yields a wrong token. What a sequence must yield is known
// without any scheduler: see ExpectedOutput.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_plan.h"

namespace quire::fakes {

// What position `position` of a sequence holds, if all of its tokens up to there are `tokens`.
std::uint64_t PrefixDigest(std::span<const TokenId> tokens);

// The token that follows content with this digest in branch `branch` of a request.
TokenId NextToken(std::uint64_t digest, std::int32_t branch);

// The first `count` output tokens of a branch, computed from the prompt alone.
std::vector<TokenId> ExpectedOutput(std::span<const TokenId> prompt, std::int32_t branch,
                                    std::int32_t count);

class ScriptedEngine {
 public:
  // `capacity` and `block_size` are those of the block manager. With a window, a token reads only
  // the slots of that many tokens, itself included.
  ScriptedEngine(std::int64_t capacity, std::int32_t block_size, std::int32_t window = 0);

  // How long the outputs are and which branch an id is; ids not given here have one token.
  struct Job {
    std::int32_t branch = 0;
    std::int32_t num_output_tokens = 1;
  };
  void SetJob(SequenceId id, Job job) { jobs_[id] = job; }

  // Executes a plan: copies, writes, reads back, samples. Dies on a plan that no kernel could run:
  // a table too short, a slot read that was never written, two writers of one slot.
  scheduler::StepResult Run(const scheduler::StepPlan& plan);

  // Output tokens so far, and in which Run each came.
  const std::vector<TokenId>& output(SequenceId id) { return outputs_[id]; }
  const std::vector<std::int64_t>& token_steps(SequenceId id) { return token_steps_[id]; }
  bool finished(SequenceId id) const;
  std::int64_t num_steps() const { return num_steps_; }

 private:
  struct Slot {
    TokenId token = -1;
    std::uint64_t digest = 0;
    std::int64_t written_in_step = -1;
  };
  Slot& SlotAt(const scheduler::ScheduledSequence& sequence, std::int32_t position);
  std::uint64_t Write(const scheduler::ScheduledSequence& sequence);
  void Sample(SequenceId id, std::uint64_t digest, scheduler::StepResult* result);

  std::int32_t block_size_;
  std::int32_t window_;
  std::vector<Slot> slots_;  // [capacity][block_size]
  std::int64_t num_steps_ = 0;
  std::map<SequenceId, Job> jobs_;
  std::map<SequenceId, std::vector<TokenId>> outputs_;
  std::map<SequenceId, std::vector<std::int64_t>> token_steps_;
};

}  // namespace quire::fakes
