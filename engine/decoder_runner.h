// The real ModelRunner: a decoder over a backend, and the KV cache that they share.
//
// Thread: the engine thread only.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/model/decoder.h"
#include "engine/model_runner.h"
#include "kernels/backend.h"

namespace quire::engine {

class DecoderRunner final : public ModelRunner {
 public:
  // `options` are those that the decoder was loaded with. `backend` must outlive the runner.
  // RESOURCE_EXHAUSTED when the cache cannot be reserved.
  static absl::StatusOr<std::unique_ptr<DecoderRunner>> Create(
      std::unique_ptr<model::Decoder> decoder, const model::DecoderOptions& options,
      kernels::Backend& backend, const KvGeometry& geometry, std::int64_t num_blocks);

  std::int32_t vocab_size() const override { return decoder_->config().vocab_size; }
  std::int32_t max_model_len() const override { return max_model_len_; }
  const KvGeometry& kv_geometry() const override { return cache_->geometry(); }
  std::int64_t num_blocks() const override { return cache_->num_blocks(); }
  // INTERNAL, with nothing computed, when the batch breaks a limit that the scheduler must keep.
  absl::Status Step(const kernels::BatchView& batch, std::span<const kernels::SampleRow> rows,
                    std::span<kernels::SampleResult> results) override;

  std::uint64_t progress() const override { return decoder_->progress(); }

  const model::Decoder& decoder() const { return *decoder_; }

 private:
  DecoderRunner(std::unique_ptr<model::Decoder> decoder, const model::DecoderOptions& options,
                kernels::Backend& backend, std::unique_ptr<kernels::KvCache> cache);
  absl::Status CheckBatch(const kernels::BatchView& batch, std::size_t num_rows,
                          std::size_t num_results) const;

  const std::unique_ptr<model::Decoder> decoder_;
  const std::int32_t max_batched_tokens_, max_logits_rows_, max_model_len_;
  kernels::Backend& backend_;
  const std::unique_ptr<kernels::KvCache> cache_;
};

}  // namespace quire::engine
