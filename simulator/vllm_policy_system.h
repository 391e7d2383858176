// vLLM's scheduling policies where they differ from Quire's (reference:
// v1/core/sched/scheduler.py), over the same block manager: running sequences first, in the order
// of admission, under one token budget; when blocks are short the victim is the sequence admitted
// last; no watermark; the head of the queue blocks all behind it, and nothing is admitted in a step
// that preempts; a preempted sequence goes to the front of the queue and is computed again.
// Branches of a request are sequences of their own that share what the prefix cache holds, as in
// its V1.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "block_manager/block_manager.h"
#include "simulator/scripted_sequences.h"
#include "simulator/serving_system.h"

namespace quire::simulator {

struct VllmPolicyOptions {
  std::int32_t max_num_seqs = 256;
  std::int32_t max_num_batched_tokens = 2048;
  std::int32_t max_model_len = 2048;
};

class VllmPolicySystem final : public ServingSystem {
 public:
  VllmPolicySystem(const block_manager::BlockManagerOptions& blocks,
                   const VllmPolicyOptions& options);

  absl::Status CheckFits(const Request& request) const override;
  void Add(std::int32_t index, const Request& request, std::vector<TokenId> prompt,
           absl::Time now) override;
  bool has_work() const override { return !waiting_.empty() || !running_.empty(); }
  std::int64_t num_waiting() const override { return std::ssize(waiting_); }
  std::int64_t num_running() const override { return std::ssize(running_); }
  StepWork BeginStep(absl::Time now, std::vector<Happening>* happenings) override;
  MemoryUse memory() const override;
  void EndStep(absl::Duration took, std::vector<Happening>* happenings) override;
  Counters counters() const override;

 private:
  struct Sequence {
    SequenceId id;
    std::vector<TokenId> tokens;  // Prompt, then answer.
    block_manager::SequenceBlocks blocks;
    bool was_admitted = false;
    std::int32_t max_computed_tokens = 0;  // Before any preemption.
    std::int32_t num_scheduled = 0;        // In this step.

    std::int32_t num_uncomputed() const {
      return static_cast<std::int32_t>(tokens.size()) - blocks.num_computed_tokens();
    }
  };

  void ScheduleRunning(StepWork* work, std::vector<Happening>* happenings);
  void AdmitWaiting(StepWork* work, std::vector<Happening>* happenings);
  void Schedule(Sequence* sequence, StepWork* work);
  void PreemptLast();

  const VllmPolicyOptions options_;
  block_manager::BlockManager blocks_;
  ScriptedSequences script_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // In the order of admission.
  std::vector<block_manager::CopyOrder> copies_;
  // Of the step that computes.
  std::int32_t token_budget_ = 0;
  std::int64_t scheduled_tokens_ = 0;
  Counters counters_;
};

}  // namespace quire::simulator
