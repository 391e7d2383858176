// A decoder of the Llama family, written once over kernels::Backend: packs the weights, owns the
// activations, computes hidden states and logits for a batch.
//
// Thread: one at a time (the engine thread).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace quire::engine::model {

// How matrices are kept. kAuto keeps every weight exactly, in the fewest bytes: Q4_0 and Q4_1 as
// int4_g32, Q8_0 as int8_g32, BF16 as bf16, F32 and F16 as f32 (bf16 would round F16 values).
enum class WeightDtype { kAuto, kF32, kBf16 };

struct DecoderOptions {
  WeightDtype weight_dtype = WeightDtype::kAuto;
  std::int32_t max_batched_tokens = 2048;  // Rows of a step at most.
  std::int32_t max_logits_rows = 64;       // Rows of logits made at a time.
  std::int32_t max_positions = 0;          // 0: the model's own, which is also the limit.
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Called with (done, total) bytes of the file's weights while packing; may be empty.
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;
  static absl::StatusOr<std::unique_ptr<Decoder>> Load(const ModelFiles& files,
                                                       kernels::Backend& backend,
                                                       const DecoderOptions& options,
                                                       const Progress& progress);

  // Runs all layers over the batch, writing K and V into `cache`; keeps the final hidden state of
  // batch.logits_rows for Logits. REQUIRES: at most max_batched_tokens tokens, positions below
  // max_positions. Does not execute batch.copies.
  virtual void Forward(const kernels::BatchView& batch, kernels::KvCache& cache) = 0;
  // Logits of logits rows [first, first + count) of the last Forward, count <= max_logits_rows. The
  // result is valid until the next call. [count, vocab_size]
  virtual kernels::MatrixView Logits(std::int32_t first, std::int32_t count) = 0;

  // Rises with every layer that Forward has computed. Any thread.
  virtual std::uint64_t progress() const = 0;

  virtual const ModelConfig& config() const = 0;
  virtual std::int64_t weight_bytes() const = 0;
  virtual std::int64_t activation_bytes() const = 0;
  virtual std::string weight_format_summary() const = 0;  // "int4_g32 + int8_g32 head"
};

}  // namespace quire::engine::model
