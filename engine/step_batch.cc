#include "engine/step_batch.h"

#include "base/check.h"

namespace quire::engine {

void StepBatch::Clear() {
  for (auto* array : {&positions_, &kv_lens_, &block_ids_, &first_position_, &logits_rows_}) {
    array->clear();
  }
  token_ids_.clear();
  copies_.clear();
  sample_rows_.clear();
  q_indptr_.assign(1, 0);
  block_indptr_.assign(1, 0);
}

void StepBatch::AddCopies(std::span<const scheduler::BlockCopyOrder> copies) {
  for (const scheduler::BlockCopyOrder& copy : copies) {
    copies_.push_back({.source = copy.source.value(), .target = copy.target.value()});
  }
}

std::int32_t StepBatch::AddSequence(const scheduler::ScheduledSequence& sequence) {
  const std::int32_t first_row = num_tokens();
  const std::int32_t end = sequence.first_token + sequence.num_tokens;
  QUIRE_DCHECK(sequence.num_tokens > 0 && static_cast<std::int32_t>(sequence.tokens.size()) >= end);
  for (std::int32_t position = sequence.first_token; position < end; ++position) {
    token_ids_.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
    positions_.push_back(position);
  }
  q_indptr_.push_back(num_tokens());
  kv_lens_.push_back(end);
  for (const BlockId block : sequence.block_table) block_ids_.push_back(block.value());
  block_indptr_.push_back(static_cast<std::int32_t>(block_ids_.size()));
  first_position_.push_back(sequence.first_position);
  return first_row;
}

void StepBatch::AddSampleRow(std::int32_t row, const kernels::SampleRow& sample) {
  QUIRE_DCHECK(row < num_tokens() && (logits_rows_.empty() || logits_rows_.back() <= row));
  logits_rows_.push_back(row);
  sample_rows_.push_back(sample);
}

kernels::BatchView StepBatch::View() const {
  return {.token_ids = token_ids_,
          .positions = positions_,
          .q_indptr = q_indptr_,
          .kv_lens = kv_lens_,
          .block_indptr = block_indptr_,
          .block_ids = block_ids_,
          .first_position = first_position_,
          .logits_rows = logits_rows_,
          .copies = copies_};
}

std::span<kernels::SampleResult> StepBatch::ResetResults() {
  if (results_.size() < sample_rows_.size()) results_.resize(sample_rows_.size());
  const std::span<kernels::SampleResult> used(results_.data(), sample_rows_.size());
  for (kernels::SampleResult& result : used) {
    result.ok = false;
    result.top.clear();
  }
  return used;
}

}  // namespace quire::engine
