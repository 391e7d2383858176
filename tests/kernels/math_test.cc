#include "kernels/math.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "base/philox.h"
#include "kernels/rope.h"

namespace quire::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A repeatable number in [low, high).
double Random(std::uint64_t index, double low, double high) {
  return low + (high - low) * PhiloxUniform(7, 0, index);
}

TEST(Exp, FloatStaysWithinItsStatedError) {
  double worst = 0;
  for (std::uint64_t i = 0; i < 400'000; ++i) {
    const auto x = static_cast<float>(Random(i, -87.33, 88.72));
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(Exp(x)) / exact - 1));
  }
  EXPECT_LT(worst, 1.3e-7);
  EXPECT_GT(worst, 1e-9);
}

TEST(Exp, FloatHandlesTheEndsOfItsRange) {
  EXPECT_EQ(Exp(0.0F), 1.0F);
  EXPECT_EQ(Exp(-0.0F), 1.0F);
  EXPECT_EQ(Exp(-kInfinity), 0.0F);
  EXPECT_EQ(Exp(-1e30F), 0.0F);
  EXPECT_EQ(Exp(-87.34F), 0.0F);
  EXPECT_GE(Exp(-87.33F), std::numeric_limits<float>::min());
  EXPECT_TRUE(std::isfinite(Exp(88.7F)));
  EXPECT_GT(Exp(88.7F), 3e38F);
  EXPECT_EQ(Exp(88.8F), kInfinity);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
}

TEST(Exp, FloatNeverDecreases) {
  float last = 0;
  for (float x = -90.0F; x < 0; x += 1.0F / 512) {
    EXPECT_GE(Exp(x), last) << x;
    last = Exp(x);
  }
}

TEST(Exp, DoubleAgreesWithTheLibrary) {
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const double x = Random(i, -708, 709);
    EXPECT_LT(std::abs(Exp(x) / std::exp(x) - 1), 6e-16) << x;
  }
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(-709.0), 0.0);
  EXPECT_EQ(Exp(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_EQ(Exp(710.0), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<double>::quiet_NaN())));
}

TEST(Log, AgreesWithTheLibrary) {
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const double x = std::exp(Random(i, -300, 300));
    EXPECT_NEAR(Log(x), std::log(x), 5e-16 * std::max(1.0, std::abs(std::log(x)))) << x;
  }
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const double x = Random(i, 0.99, 1.01);
    EXPECT_NEAR(Log(x), std::log(x), 1e-17) << x;
  }
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_NEAR(Log(5e-324), std::log(5e-324), 1e-12);
  EXPECT_TRUE(std::isnan(Log(-1.0)));
  EXPECT_TRUE(std::isnan(Log(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(Log(2.0F), std::numbers::ln2_v<float>);
}

TEST(SinCos, AgreesWithTheLibrary) {
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    const double angle = Random(i, -10, 10) * (i % 2 == 0 ? 1 : 1.5e5);
    const SinCosResult value = SinCos(angle);
    EXPECT_NEAR(value.sin, std::sin(angle), 4e-16) << angle;
    EXPECT_NEAR(value.cos, std::cos(angle), 4e-16) << angle;
  }
  EXPECT_EQ(SinCos(0).sin, 0.0);
  EXPECT_EQ(SinCos(0).cos, 1.0);
}

// The definition: the nearest half, ties to the one with an even last bit.
std::uint16_t NearestHalf(float value) {
  std::uint16_t best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (std::uint32_t bits = 0; bits <= 0x7c00U; ++bits) {
    // Infinity takes the place that 65536 would have.
    const double candidate =
        bits == 0x7c00U ? 65536.0 : static_cast<double>(F16ToF32(static_cast<std::uint16_t>(bits)));
    const double distance = std::abs(candidate - std::abs(static_cast<double>(value)));
    if (distance < best_distance || (distance == best_distance && bits % 2 == 0)) {
      best = static_cast<std::uint16_t>(bits);
      best_distance = distance;
    }
  }
  return static_cast<std::uint16_t>(best | (std::signbit(value) ? 0x8000U : 0U));
}

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = F16ToF32(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value)))) << bits;
    } else {
      EXPECT_EQ(F32ToF16(value), bits);
    }
  }
}

TEST(Half, ReadsKnownValues) {
  EXPECT_EQ(F16ToF32(0x3c00), 1.0F);
  EXPECT_EQ(F16ToF32(0xc000), -2.0F);
  EXPECT_EQ(F16ToF32(0x7bff), 65504.0F);
  EXPECT_EQ(F16ToF32(0x0400), 0x1p-14F);
  EXPECT_EQ(F16ToF32(0x0001), 0x1p-24F);
  EXPECT_EQ(F16ToF32(0x7c00), kInfinity);
}

TEST(Half, RoundsToNearestEven) {
  for (std::uint64_t i = 0; i < 60; ++i) {
    const auto value =
        static_cast<float>(std::exp2(Random(i, -27, 17)) * (i % 2 == 0 ? 1.0 : -1.0));
    EXPECT_EQ(F32ToF16(value), NearestHalf(value)) << value;
  }
  // Ties: halfway between neighbours, between subnormals, and between the largest and infinity.
  for (const float value : {1 + 0x1p-11F, 1 + 0x3p-11F, 0x1p-25F, 0x3p-25F, 65519.0F, 65520.0F,
                            0x1p-14F - 0x1p-25F, 2048.5F}) {
    EXPECT_EQ(F32ToF16(value), NearestHalf(value)) << value;
    EXPECT_EQ(F32ToF16(-value), NearestHalf(-value)) << -value;
  }
  EXPECT_EQ(F32ToF16(1e30F), 0x7c00);
  EXPECT_EQ(F32ToF16(-kInfinity), 0xfc00);
  EXPECT_EQ(F32ToF16(kNan), 0x7e00);
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(F32ToBf16(1.0F), 0x3f80);
  EXPECT_EQ(F32ToBf16(1 + 0x1p-8F), 0x3f80);             // tie, down to even
  EXPECT_EQ(F32ToBf16(1 + 0x3p-8F), 0x3f82);             // tie, up to even
  EXPECT_EQ(F32ToBf16(1 + 0x1p-8F + 0x1p-20F), 0x3f81);  // above the tie
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(F32ToBf16(-kInfinity), 0xff80);
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::bit_cast<float>(0x7f800001U)))));
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = Bf16ToF32(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) {
      EXPECT_EQ(F32ToBf16(value), bits);
    }
  }
}

// Area (i) of the fault catalogue, row C120: an error in the table is 0 at position 0 and grows.
TEST(RopeTable, C120_MatchesTheFormulaAtFarPositions) {
  constexpr int kDim = 64;
  const std::vector<double> frequencies = RopeInverseFrequencies(10'000.0, kDim);
  const RopeTable table = MakeRopeTable(RopeStyle::kHalves, frequencies, 20'001);
  ASSERT_EQ(table.rotary_dim, kDim);
  ASSERT_EQ(table.cos.size(), std::size_t{20'001} * kDim / 2);
  for (const int position : {0, 1, 1'000, 8'192, 20'000}) {
    for (int i = 0; i < kDim / 2; ++i) {
      const double angle = position * std::pow(10'000.0, -2.0 * i / kDim);
      const std::size_t at = static_cast<std::size_t>(position) * kDim / 2 + i;
      EXPECT_NEAR(table.cos[at], std::cos(angle), 1e-7) << position << ' ' << i;
      EXPECT_NEAR(table.sin[at], std::sin(angle), 1e-7) << position << ' ' << i;
    }
  }
}

TEST(RopeTable, MagnitudeMultipliesCosinesAndSines) {
  const std::vector<double> frequencies = {0.5};
  const RopeTable table = MakeRopeTable(RopeStyle::kInterleaved, frequencies, 3, 2.0);
  EXPECT_FLOAT_EQ(table.cos[2], 2 * std::cos(1.0F));
  EXPECT_FLOAT_EQ(table.sin[2], 2 * std::sin(1.0F));
}

}  // namespace
}  // namespace quire::kernels
