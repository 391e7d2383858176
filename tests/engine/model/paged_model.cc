#include "tests/engine/model/paged_model.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace quire::fakes {

absl::StatusOr<std::unique_ptr<PagedModel>> PagedModel::Create(
    const engine::model::ModelFiles& files, kernels::Backend& backend,
    const PagedModelOptions& options) {
  auto result = std::make_unique<PagedModel>();
  result->options_ = options;
  result->lengths_.assign(static_cast<std::size_t>(options.num_sequences), 0);
  QUIRE_ASSIGN_OR_RETURN(auto decoder,
                         engine::model::Decoder::Load(files, backend, options.decoder, {}));
  const KvGeometry geometry =
      engine::model::KvGeometryFor(files.config(), options.block_size, options.kv_dtype);
  QUIRE_ASSIGN_OR_RETURN(
      result->runner_, engine::DecoderRunner::Create(
                           std::move(decoder), options.decoder, backend, geometry,
                           options.num_sequences * geometry.blocks_for_tokens(options.max_tokens)));
  return result;
}

std::vector<kernels::SampleResult> PagedModel::Step(const std::vector<SequenceChunk>& chunks,
                                                    const kernels::SampleRow& row) {
  std::size_t num_rows = 0;
  for (const SequenceChunk& chunk : chunks) num_rows += chunk.all_logits ? chunk.ids.size() : 1;
  return Run(chunks, std::vector<kernels::SampleRow>(num_rows, row));
}

std::vector<kernels::SampleResult> PagedModel::Score(const std::vector<SequenceChunk>& chunks,
                                                     std::span<const TokenId> forced) {
  std::vector<kernels::SampleRow> rows;
  for (const TokenId token : forced) {
    rows.push_back({.forced_token = token, .num_logprobs = 0});
  }
  return Run(chunks, std::move(rows));
}

std::vector<kernels::SampleResult> PagedModel::Run(const std::vector<SequenceChunk>& chunks,
                                                   std::vector<kernels::SampleRow> rows) {
  std::vector<TokenId> ids;
  std::vector<std::int32_t> positions, q_indptr = {0}, kv_lens, block_indptr = {0}, blocks,
                                       logits_rows;
  for (const SequenceChunk& chunk : chunks) {
    std::int32_t& length = lengths_[static_cast<std::size_t>(chunk.sequence)];
    for (std::size_t i = 0; i < chunk.ids.size(); ++i) {
      if (chunk.all_logits || i + 1 == chunk.ids.size()) {
        logits_rows.push_back(static_cast<std::int32_t>(ids.size()));
      }
      ids.push_back(chunk.ids[i]);
      positions.push_back(length++);
    }
    QUIRE_CHECK(length <= options_.max_tokens) << "sequence " << chunk.sequence;
    q_indptr.push_back(static_cast<std::int32_t>(ids.size()));
    kv_lens.push_back(length);
    for (std::int32_t b = 0; b * options_.block_size < length; ++b) {
      blocks.push_back(b * options_.num_sequences + chunk.sequence);
    }
    block_indptr.push_back(static_cast<std::int32_t>(blocks.size()));
  }
  const std::vector<std::int32_t> first_positions(chunks.size(), 0);
  const kernels::BatchView batch = {.token_ids = ids,
                                    .positions = positions,
                                    .q_indptr = q_indptr,
                                    .kv_lens = kv_lens,
                                    .block_indptr = block_indptr,
                                    .block_ids = blocks,
                                    .first_position = first_positions,
                                    .logits_rows = logits_rows,
                                    .copies = {}};
  std::vector<kernels::SampleResult> results(rows.size());
  const absl::Status status = runner_->Step(batch, rows, results);
  QUIRE_CHECK(status.ok()) << status.ToString();
  return results;
}

std::vector<float> AllLogprobs(const kernels::SampleResult& result, std::int32_t vocab_size) {
  std::vector<float> logprobs(static_cast<std::size_t>(vocab_size), 0);
  for (const kernels::TokenLogprob& entry : result.top) {
    logprobs[static_cast<std::size_t>(entry.token)] = entry.logprob;
  }
  return logprobs;
}

}  // namespace quire::fakes
