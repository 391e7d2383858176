// Matrices in the CPU's packed layout, and single rows out of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/packed_layout.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/weights.h"

namespace quire::kernels::cpu {

// Immutable once packed. Any thread.
class PackedWeights final : public LinearWeights {
 public:
  // Backend::PackLinear. INVALID_ARGUMENT: no or empty sources, sources that differ in cols(), an
  // encoding that does not fit `format`, scales or offsets that are not finite f16 values, int4
  // codes outside [0, 15]. RESOURCE_EXHAUSTED: no memory. Reads all sources from all workers of
  // `pool`, a column group of 32 rows at a time.
  static absl::StatusOr<std::unique_ptr<PackedWeights>> Pack(
      std::span<const MatrixSource* const> sources, WeightFormat format, ThreadPool& pool);

  std::int32_t in_features() const override { return inputs_; }
  std::int32_t out_features() const override { return outputs_; }
  WeightFormat format() const override { return format_; }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(buffer_.size()); }

  PackedFormat packed_format() const { return packed_format_; }
  const std::byte* data() const { return buffer_.data(); }
  std::int64_t group_bytes() const { return group_bytes_; }
  std::int64_t num_groups() const { return (outputs_ + kGroupColumns - 1) / kGroupColumns; }

  // The weights of output `row` as f32: exactly those that the linear kernels multiply with.
  // out: [in_features]
  void UnpackRow(std::int32_t row, float* out) const;

 private:
  PackedWeights(WeightFormat format, PackedFormat packed_format, std::int32_t inputs,
                std::int32_t outputs);

  WeightFormat format_;
  PackedFormat packed_format_;
  std::int32_t inputs_;
  std::int32_t outputs_;
  std::int64_t group_bytes_;
  AlignedBuffer buffer_;
};

}  // namespace quire::kernels::cpu
