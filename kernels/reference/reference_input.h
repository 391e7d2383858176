// Activations of the reference backend: dense f32 rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace quire::kernels::reference {

class ReferenceInput final : public LinearInput {
 public:
  ReferenceInput(std::int32_t max_rows, std::int32_t features)
      : max_rows_(max_rows),
        features_(features),
        values_(static_cast<std::size_t>(max_rows) * features) {}

  std::int32_t features() const override { return features_; }
  std::int32_t max_rows() const override { return max_rows_; }
  MatrixView view() {
    return {.data = values_.data(), .rows = max_rows_, .cols = features_, .stride = features_};
  }
  const float* row(std::int64_t r) const { return values_.data() + r * features_; }

 private:
  std::int32_t max_rows_;
  std::int32_t features_;
  std::vector<float> values_;
};

}  // namespace quire::kernels::reference
