// Norm, gated activations and row gathering of every backend and instruction set level.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/math.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/matrix_sources.h"

namespace quire::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ElementwiseTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  // Row r of Norm(x), x: [rows, size].
  std::vector<std::vector<float>> Norm(std::vector<float> x, std::int32_t rows,
                                       const std::vector<float>& gain, float epsilon) {
    const auto size = static_cast<std::int32_t>(gain.size());
    const auto input = backend_->NewLinearInput(rows, size);
    backend_->Norm({x.data(), rows, size, size}, gain, epsilon, *input);
    return Rows(*input, rows);
  }

  // Row r of the gate's result, x: [rows, 2 * size].
  std::vector<std::vector<float>> Gate(Activation activation, std::vector<float> x,
                                       std::int32_t rows, std::int32_t size) {
    const auto input = backend_->NewLinearInput(rows, size);
    backend_->GatedActivation(activation, {x.data(), rows, 2 * size, 2 * size}, *input);
    return Rows(*input, rows);
  }

  static std::vector<std::vector<float>> Rows(const LinearInput& input, std::int32_t rows) {
    std::vector<std::vector<float>> result;
    for (std::int32_t r = 0; r < rows; ++r) result.push_back(InputRow(input, r));
    return result;
  }

  std::unique_ptr<Backend> backend_ = GetParam().Make();
};

INSTANTIATE_TEST_SUITE_P(AllBackends, ElementwiseTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& param) { return param.param.name(); });

std::vector<float> RandomValues(std::int64_t count, unsigned seed, float scale) {
  std::vector<float> values = Dequantised(FloatMatrix::Random(1, count, seed));
  for (float& value : values) value *= scale;
  return values;
}

std::vector<float> Slice(const std::vector<float>& values, std::int64_t first, std::int64_t count) {
  return {values.begin() + first, values.begin() + first + count};
}

TEST_P(ElementwiseTest, NormAgreesWithDoublePrecision) {
  for (const std::int32_t size : {1, 7, 16, 31, 33, 63, 576, 1000}) {
    for (const float scale : {1e-6F, 1.0F, 1e5F}) {
      constexpr std::int32_t kRows = 3;
      const std::vector<float> x = RandomValues(kRows * size, 1, scale);
      const std::vector<float> gain = RandomValues(size, 2, 1.0F);
      const auto result = Norm(x, kRows, gain, 1e-5F);
      for (std::int32_t r = 0; r < kRows; ++r) {
        double squares = 0;
        for (std::int32_t i = 0; i < size; ++i) {
          const double value = x[static_cast<std::size_t>(r * size + i)];
          squares += value * value;
        }
        const double scale_exact = 1 / std::sqrt(squares / size + static_cast<double>(1e-5F));
        for (std::int32_t i = 0; i < size; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const double exact = x[static_cast<std::size_t>(r * size + i)] * scale_exact * gain[at];
          ASSERT_NEAR(result[static_cast<std::size_t>(r)][at], exact,
                      5e-7 * std::abs(exact) + 1e-37)
              << "size " << size << " at " << r << "," << i;
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, NormOfZerosIsZero) {
  const auto result = Norm(std::vector<float>(100), 1, std::vector<float>(100, 3.0F), 1e-5F);
  for (const float value : result[0]) EXPECT_EQ(value, 0.0F);
}

TEST_P(ElementwiseTest, NormKeepsNanInItsRow) {
  std::vector<float> x = RandomValues(3 * 40, 3, 1.0F);
  x[40 + 39] = kNan;
  const auto result = Norm(x, 3, std::vector<float>(40, 1.0F), 1e-5F);
  for (int i = 0; i < 40; ++i) {
    EXPECT_FALSE(std::isnan(result[0][static_cast<std::size_t>(i)]));
    EXPECT_TRUE(std::isnan(result[1][static_cast<std::size_t>(i)]));
    EXPECT_FALSE(std::isnan(result[2][static_cast<std::size_t>(i)]));
  }
}

// C117: rows of a batch have the bits they have alone.
TEST_P(ElementwiseTest, C117_RowsDoNotDependOnTheBatch) {
  constexpr std::int32_t kRows = 200;  // Enough to occupy all workers.
  constexpr std::int32_t kSize = 333;
  const std::vector<float> x = RandomValues(kRows * 2 * kSize, 4, 2.0F);
  const std::vector<float> gain = RandomValues(2 * kSize, 5, 1.0F);
  const auto norm = Norm(x, kRows, gain, 1e-6F);
  const auto silu = Gate(Activation::kSilu, x, kRows, kSize);
  const auto gelu = Gate(Activation::kGeluTanh, x, kRows, kSize);
  for (std::int32_t r = 0; r < kRows; ++r) {
    const std::vector<float> row = Slice(x, r * 2 * kSize, 2 * kSize);
    const auto at = static_cast<std::size_t>(r);
    ASSERT_EQ(Norm(row, 1, gain, 1e-6F)[0], norm[at]) << r;
    ASSERT_EQ(Gate(Activation::kSilu, row, 1, kSize)[0], silu[at]) << r;
    ASSERT_EQ(Gate(Activation::kGeluTanh, row, 1, kSize)[0], gelu[at]) << r;
  }
}

// An element's place in its vector, or in the incomplete last one, does not matter.
TEST_P(ElementwiseTest, GatesDoNotDependOnTheColumn) {
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    const float expected = Gate(activation, {1.7F, -0.3F}, 1, 1)[0][0];
    for (std::int32_t size = 1; size < 70; ++size) {
      std::vector<float> x(static_cast<std::size_t>(2 * size), 1.7F);
      for (std::int32_t i = 0; i < size; ++i) x[static_cast<std::size_t>(size + i)] = -0.3F;
      const std::vector<float> gated = Gate(activation, x, 1, size)[0];
      for (const float value : gated) ASSERT_EQ(value, expected) << size;
    }
  }
}

TEST_P(ElementwiseTest, GatesAgreeWithDoublePrecision) {
  constexpr std::int32_t kSize = 4001;
  std::vector<float> x(2 * kSize);
  for (std::int32_t i = 0; i < kSize; ++i) {
    x[static_cast<std::size_t>(i)] = static_cast<float>(i - 2000) / 100;  // -20 … 20
    x[static_cast<std::size_t>(kSize + i)] = static_cast<float>(i % 7) - 2.5F;
  }
  const auto silu = Gate(Activation::kSilu, x, 1, kSize)[0];
  const auto gelu = Gate(Activation::kGeluTanh, x, 1, kSize)[0];
  for (std::size_t i = 0; i < kSize; ++i) {
    const double gate = x[i];
    const double up = x[kSize + i];
    const double silu_exact = gate / (1 + std::exp(-gate)) * up;
    ASSERT_NEAR(silu[i], silu_exact, 6e-7 * std::abs(silu_exact)) << gate;
    const double u = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
    const double gelu_exact = gate / (1 + std::exp(-2 * u)) * up;
    // Rounding the exponent costs |2 u| roundings of the result.
    ASSERT_NEAR(gelu[i], gelu_exact, (1e-6 + 3e-7 * std::abs(2 * u)) * std::abs(gelu_exact) + 1e-36)
        << gate;
  }
}

TEST_P(ElementwiseTest, GatesStayFiniteWhereTheExponentialDoesNot) {
  const std::vector<float> x = {-1000.0F, -89.0F, -0.0F, 89.0F, 1000.0F, kNan, kInfinity,
                                1.0F,     1.0F,   1.0F,  1.0F,  1.0F,    1.0F, 1.0F};
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    const auto result = Gate(activation, x, 1, 7)[0];
    EXPECT_NEAR(result[0], 0.0F, 1e-30F);
    EXPECT_NEAR(result[1], 0.0F, 1e-30F);
    EXPECT_EQ(result[2], 0.0F);
    EXPECT_EQ(result[3], 89.0F);
    EXPECT_EQ(result[4], 1000.0F);
    EXPECT_TRUE(std::isnan(result[5]));
    EXPECT_EQ(result[6], kInfinity);
  }
}

TEST_P(ElementwiseTest, GathersRowsInTheOrderAsked) {
  constexpr std::int32_t kCols = 19;
  std::vector<float> x = RandomValues(6 * kCols, 6, 1.0F);
  const std::vector<std::int32_t> rows = {5, 0, 5, 3};
  std::vector<float> out(rows.size() * kCols);
  backend_->GatherRows({x.data(), 6, kCols, kCols}, rows, {out.data(), 4, kCols, kCols});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(Slice(out, static_cast<std::int64_t>(i) * kCols, kCols),
              Slice(x, rows[i] * kCols, kCols));
  }
}

}  // namespace
}  // namespace quire::kernels
