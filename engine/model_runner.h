// Computes one step: the engine loop's only view of a model. The real one drives a decoder over a
// kernels::Backend and owns the KV cache; tests use fakes.
//
// Thread: the engine thread only.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "base/kv_geometry.h"
#include "kernels/batch_view.h"
#include "kernels/sample.h"

namespace quire::engine {

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual std::int32_t vocab_size() const = 0;
  virtual std::int32_t max_model_len() const = 0;
  virtual const KvGeometry& kv_geometry() const = 0;
  virtual std::int64_t num_blocks() const = 0;
  // Computes the batch, then samples: rows[i] and results[i] belong to batch.logits_rows[i]. Logits
  // are made for a bounded number of rows at a time. An error ends every sequence of the step.
  virtual absl::Status Step(const kernels::BatchView& batch,
                            std::span<const kernels::SampleRow> rows,
                            std::span<kernels::SampleResult> results) = 0;
  // Rises while a Step computes, so that a long one can be told from one that hangs. Any thread.
  virtual std::uint64_t progress() const { return 0; }
};

}  // namespace quire::engine
