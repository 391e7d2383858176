#include "engine/decoder_runner.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace quire::engine {

absl::StatusOr<std::unique_ptr<DecoderRunner>> DecoderRunner::Create(
    std::unique_ptr<model::Decoder> decoder, const model::DecoderOptions& options,
    kernels::Backend& backend, const KvGeometry& geometry, std::int64_t num_blocks) {
  QUIRE_RETURN_IF_ERROR(geometry.Validate());
  QUIRE_ASSIGN_OR_RETURN(auto cache, backend.NewKvCache(geometry, num_blocks));
  return std::unique_ptr<DecoderRunner>(
      new DecoderRunner(std::move(decoder), options, backend, std::move(cache)));
}

DecoderRunner::DecoderRunner(std::unique_ptr<model::Decoder> decoder,
                             const model::DecoderOptions& options, kernels::Backend& backend,
                             std::unique_ptr<kernels::KvCache> cache)
    : decoder_(std::move(decoder)),
      max_batched_tokens_(options.max_batched_tokens),
      max_logits_rows_(options.max_logits_rows),
      max_model_len_(options.max_positions > 0 ? options.max_positions
                                               : decoder_->config().max_positions),
      backend_(backend),
      cache_(std::move(cache)) {}

absl::Status DecoderRunner::CheckBatch(const kernels::BatchView& batch, std::size_t num_rows,
                                       std::size_t num_results) const {
  if (batch.num_tokens() > max_batched_tokens_) {
    return Internal("a step of {} tokens, but the decoder takes at most {}", batch.num_tokens(),
                    max_batched_tokens_);
  }
  if (num_rows != batch.logits_rows.size() || num_results != num_rows) {
    return Internal("{} logits rows, {} sample rows, {} results", batch.logits_rows.size(),
                    num_rows, num_results);
  }
  const auto in_vocabulary = [&](TokenId id) { return id >= 0 && id < vocab_size(); };
  if (!std::all_of(batch.token_ids.begin(), batch.token_ids.end(), in_vocabulary)) {
    return Internal("a token id outside the vocabulary of {}", vocab_size());
  }
  const auto in_context = [&](std::int32_t p) { return p >= 0 && p < max_model_len_; };
  if (!std::all_of(batch.positions.begin(), batch.positions.end(), in_context)) {
    return Internal("a position outside the context of {}", max_model_len_);
  }
  const auto in_cache = [&](std::int32_t b) { return b >= 0 && b < num_blocks(); };
  if (!std::all_of(batch.block_ids.begin(), batch.block_ids.end(), in_cache)) {
    return Internal("a block id outside the pool of {}", num_blocks());
  }
  return absl::OkStatus();
}

absl::Status DecoderRunner::Step(const kernels::BatchView& batch,
                                 std::span<const kernels::SampleRow> rows,
                                 std::span<kernels::SampleResult> results) {
  QUIRE_RETURN_IF_ERROR(CheckBatch(batch, rows.size(), results.size()));
  backend_.CopyBlocks(*cache_, batch.copies);
  if (batch.num_tokens() == 0) return absl::OkStatus();
  decoder_->Forward(batch, *cache_);
  const auto num_rows = static_cast<std::int32_t>(rows.size());
  for (std::int32_t first = 0; first < num_rows; first += max_logits_rows_) {
    const std::int32_t count = std::min(max_logits_rows_, num_rows - first);
    const kernels::MatrixView logits = decoder_->Logits(first, count);
    backend_.Sample(
        logits, rows.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
        results.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
  }
  return absl::OkStatus();
}

}  // namespace quire::engine
