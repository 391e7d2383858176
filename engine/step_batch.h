// One step's work, flattened from the scheduler's plan into the arrays that kernels read, with the
// rows to sample. Memory is kept from step to step.
//
// Thread: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/batch_view.h"
#include "kernels/sample.h"
#include "scheduler/step_plan.h"

namespace quire::engine {

class StepBatch {
 public:
  StepBatch() { Clear(); }
  void Clear();

  void AddCopies(std::span<const scheduler::BlockCopyOrder> copies);

  // Appends the sequence's tokens and block table; returns the batch row of its first token.
  std::int32_t AddSequence(const scheduler::ScheduledSequence& sequence);

  // Asks for the logits of batch row `row` and says what to do with them. REQUIRES: `row` belongs
  // to the sequence added last and is not below an earlier one. What `sample` points to must
  // outlive the step.
  void AddSampleRow(std::int32_t row, const kernels::SampleRow& sample);

  // Valid until the next change.
  kernels::BatchView View() const;
  std::span<const kernels::SampleRow> sample_rows() const { return sample_rows_; }
  // One per sample row, all `ok == false` until the runner has filled them.
  std::span<kernels::SampleResult> ResetResults();
  std::span<const kernels::SampleResult> results() const {
    return {results_.data(), sample_rows_.size()};
  }

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(token_ids_.size()); }

 private:
  std::vector<TokenId> token_ids_;
  std::vector<std::int32_t> positions_, q_indptr_, kv_lens_, block_indptr_, block_ids_,
      first_position_, logits_rows_;
  std::vector<kernels::BlockCopy> copies_;
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<kernels::SampleResult> results_;
};

}  // namespace quire::engine
