// Weight matrices made of arrays, for tests of PackLinear.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/weights.h"

namespace quire::kernels {

// Plain floats.
class FloatMatrix final : public MatrixSource {
 public:
  FloatMatrix(std::int64_t rows, std::int64_t cols, std::vector<float> values)
      : rows_(rows), cols_(cols), values_(std::move(values)) {}
  static FloatMatrix Random(std::int64_t rows, std::int64_t cols, unsigned seed);

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  Encoding encoding() const override { return Encoding::kFloat; }
  void ReadRow(std::int64_t row, std::span<float> out) const override;
  void ReadGroups(std::int64_t row, std::span<std::int8_t> codes, std::span<float> scales,
                  std::span<float> offsets) const override;

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  std::vector<float> values_;  // [rows, cols]
};

// Integer groups of 32 along a row. Public arrays, so that a test can spoil one entry.
class GroupMatrix final : public MatrixSource {
 public:
  // Codes over the whole range of the encoding; scales and offsets are f16 values of both signs.
  static GroupMatrix Random(std::int64_t rows, std::int64_t cols, Encoding encoding, bool offsets,
                            unsigned seed);

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  Encoding encoding() const override { return encoding_; }
  void ReadRow(std::int64_t row, std::span<float> out) const override;
  void ReadGroups(std::int64_t row, std::span<std::int8_t> codes, std::span<float> scales,
                  std::span<float> offsets) const override;

  std::vector<std::int8_t> codes;  // [rows, cols]
  std::vector<float> scales;       // [rows, cols / 32]
  std::vector<float> offsets;

 private:
  GroupMatrix(std::int64_t rows, std::int64_t cols, Encoding encoding);

  std::int64_t rows_;
  std::int64_t cols_;
  Encoding encoding_;
};

// The sum of a[i] * b[i] in double precision, and of the squares of these terms.
struct ExactDot {
  ExactDot(std::span<const float> a, std::span<const float> b);
  double sum = 0;
  double sum_of_squares = 0;
};

// Row by row, as ReadRow gives it. [rows * cols]
std::vector<float> Dequantised(const MatrixSource& source);

}  // namespace quire::kernels
