#include "tests/kernels/matrix_sources.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math.h"

namespace quire::kernels {

FloatMatrix FloatMatrix::Random(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (float& value : values) value = normal(random);
  return {rows, cols, std::move(values)};
}

void FloatMatrix::ReadRow(std::int64_t row, std::span<float> out) const {
  std::copy_n(values_.begin() + row * cols_, cols_, out.begin());
}

void FloatMatrix::ReadGroups(std::int64_t /*row*/, std::span<std::int8_t> codes,
                             std::span<float> scales, std::span<float> offsets) const {
  std::fill(codes.begin(), codes.end(), std::int8_t{0});
  std::fill(scales.begin(), scales.end(), std::numeric_limits<float>::quiet_NaN());
  std::fill(offsets.begin(), offsets.end(), std::numeric_limits<float>::quiet_NaN());
}

GroupMatrix::GroupMatrix(std::int64_t rows, std::int64_t cols, Encoding encoding)
    : codes(static_cast<std::size_t>(rows * cols)),
      scales(static_cast<std::size_t>(rows * cols / 32)),
      offsets(static_cast<std::size_t>(rows * cols / 32)),
      rows_(rows),
      cols_(cols),
      encoding_(encoding) {}

GroupMatrix GroupMatrix::Random(std::int64_t rows, std::int64_t cols, Encoding encoding,
                                bool offsets, unsigned seed) {
  GroupMatrix matrix(rows, cols, encoding);
  std::mt19937 random(seed);
  const bool int4 = encoding == Encoding::kInt4Group32;
  std::uniform_int_distribution<int> code(int4 ? 0 : -128, int4 ? 15 : 127);
  std::normal_distribution<float> normal;
  const auto half = [&](float spread) { return F16ToF32(F32ToF16(spread * normal(random))); };
  for (std::int8_t& c : matrix.codes) c = static_cast<std::int8_t>(code(random));
  for (float& scale : matrix.scales) scale = half(int4 ? 0.2F : 0.01F);
  for (float& offset : matrix.offsets) offset = offsets ? half(1.0F) : 0.0F;
  return matrix;
}

void GroupMatrix::ReadRow(std::int64_t row, std::span<float> out) const {
  for (std::int64_t k = 0; k < cols_; ++k) {
    const auto group = static_cast<std::size_t>((row * cols_ + k) / 32);
    const auto code = static_cast<float>(codes[static_cast<std::size_t>(row * cols_ + k)]);
    out[static_cast<std::size_t>(k)] = std::fma(scales[group], code, offsets[group]);
  }
}

void GroupMatrix::ReadGroups(std::int64_t row, std::span<std::int8_t> row_codes,
                             std::span<float> row_scales, std::span<float> row_offsets) const {
  std::copy_n(codes.begin() + row * cols_, cols_, row_codes.begin());
  std::copy_n(scales.begin() + row * cols_ / 32, cols_ / 32, row_scales.begin());
  std::copy_n(offsets.begin() + row * cols_ / 32, cols_ / 32, row_offsets.begin());
}

ExactDot::ExactDot(std::span<const float> a, std::span<const float> b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double term = static_cast<double>(a[i]) * b[i];
    sum += term;
    sum_of_squares += term * term;
  }
}

std::vector<float> Dequantised(const MatrixSource& source) {
  std::vector<float> values(static_cast<std::size_t>(source.rows() * source.cols()));
  const auto cols = static_cast<std::size_t>(source.cols());
  for (std::int64_t r = 0; r < source.rows(); ++r) {
    source.ReadRow(r, std::span(values).subspan(static_cast<std::size_t>(r) * cols, cols));
  }
  return values;
}

}  // namespace quire::kernels
