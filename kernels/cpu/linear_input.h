// Activations on the CPU: plain f32 rows.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cpu/aligned_buffer.h"

namespace quire::kernels::cpu {

// max_rows rows of `features` floats, each starting on a 64-byte line. The stride is 16 floats more
// than the padded row so that it is never a multiple of 4096 bytes (cache set conflicts).
class CpuLinearInput final : public LinearInput {
 public:
  static constexpr std::int64_t StrideFor(std::int64_t features) {
    return (features + 15) / 16 * 16 + 16;
  }

  // `buffer` holds max_rows * StrideFor(features) floats.
  CpuLinearInput(std::int32_t max_rows, std::int32_t features, AlignedBuffer buffer)
      : max_rows_(max_rows), features_(features), buffer_(std::move(buffer)) {}

  std::int32_t features() const override { return features_; }
  std::int32_t max_rows() const override { return max_rows_; }

  std::int64_t stride() const { return StrideFor(features_); }
  float* row(std::int64_t r) { return buffer_.as<float>() + r * stride(); }
  const float* row(std::int64_t r) const { return buffer_.as<float>() + r * stride(); }

 private:
  std::int32_t max_rows_;
  std::int32_t features_;
  AlignedBuffer buffer_;
};

}  // namespace quire::kernels::cpu
