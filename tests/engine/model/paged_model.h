// A decoder with a KV cache and the simplest possible block tables, for tests that drive the model
// without scheduler and engine: each sequence owns every num_sequences-th block, so tables are
// never contiguous.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/decoder_runner.h"
#include "engine/model/decoder.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace quire::fakes {

struct PagedModelOptions {
  engine::model::DecoderOptions decoder = {};
  KvDtype kv_dtype = KvDtype::kF32;
  std::int32_t block_size = 16;
  std::int32_t num_sequences = 1;
  std::int32_t max_tokens = 64;  // Of each sequence.
};

// What one sequence adds to a step.
struct SequenceChunk {
  std::int32_t sequence = 0;
  std::vector<TokenId> ids = {};  // Appended to what the sequence already holds.
  bool all_logits = false;        // Rows for every id, not only the last.
};

class PagedModel {
 public:
  static absl::StatusOr<std::unique_ptr<PagedModel>> Create(const engine::model::ModelFiles& files,
                                                            kernels::Backend& backend,
                                                            const PagedModelOptions& options);

  // Computes the chunks in one step and samples: `row` is the template of every sample row. Results
  // come in the order of the chunks' rows.
  std::vector<kernels::SampleResult> Step(const std::vector<SequenceChunk>& chunks,
                                          const kernels::SampleRow& row);
  // As above, with forced_token of row i taken from `forced`.
  std::vector<kernels::SampleResult> Score(const std::vector<SequenceChunk>& chunks,
                                           std::span<const TokenId> forced);

  // Forgets what a sequence holds.
  void Reset(std::int32_t sequence) { lengths_[static_cast<std::size_t>(sequence)] = 0; }
  engine::DecoderRunner& runner() { return *runner_; }

 private:
  std::vector<kernels::SampleResult> Run(const std::vector<SequenceChunk>& chunks,
                                         std::vector<kernels::SampleRow> rows);

  PagedModelOptions options_;
  std::unique_ptr<engine::DecoderRunner> runner_;
  std::vector<std::int32_t> lengths_;  // Tokens that each sequence holds.
};

// Every log-probability of the vocabulary, by token id, from a result with num_logprobs = vocab.
std::vector<float> AllLogprobs(const kernels::SampleResult& result, std::int32_t vocab_size);

}  // namespace quire::fakes
