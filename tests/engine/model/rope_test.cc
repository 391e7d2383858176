// Rotary tables against the formulas of transformers' modeling_rope_utils.py, written out here with
// the C library's functions in long double.
#include "engine/model/rope.h"

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire::engine::model {
namespace {

using Real = long double;
constexpr Real kPi = std::numbers::pi_v<Real>;
constexpr int kPositions[] = {0, 1, 1000, 8192, 20000};

// Every angle and the magnitude of the table must match `frequencies` and `magnitude`.
void ExpectTable(const RopeConfig& rope, const std::vector<Real>& frequencies, Real magnitude) {
  const auto table = RopeTableFor(rope, 20001);
  const std::size_t half = frequencies.size();
  ASSERT_EQ(table.rotary_dim, rope.rotary_dim);
  ASSERT_EQ(table.style, rope.style);
  ASSERT_EQ(table.cos.size(), 20001 * half);
  for (const int position : kPositions) {
    for (std::size_t i = 0; i < half; ++i) {
      const Real angle = position * frequencies[i];
      const std::size_t at = static_cast<std::size_t>(position) * half + i;
      EXPECT_LT(std::abs(table.cos[at] - std::cos(angle) * magnitude), 1e-6L)
          << position << " pair " << i;
      EXPECT_LT(std::abs(table.sin[at] - std::sin(angle) * magnitude), 1e-6L)
          << position << " pair " << i;
    }
  }
}

std::vector<Real> PlainFrequencies(const RopeConfig& rope) {
  std::vector<Real> frequencies;
  for (int i = 0; i < rope.rotary_dim; i += 2) {
    frequencies.push_back(
        1 / std::pow(static_cast<Real>(rope.base), static_cast<Real>(i) / rope.rotary_dim));
  }
  return frequencies;
}

TEST(Rope, C120_None) {
  const RopeConfig rope{.base = 100000, .rotary_dim = 64};
  ExpectTable(rope, PlainFrequencies(rope), 1);
}

TEST(Rope, C120_Linear) {
  const RopeConfig rope{
      .base = 10000, .rotary_dim = 128, .scaling = RopeScaling::kLinear, .factor = 4};
  auto frequencies = PlainFrequencies(rope);
  for (Real& frequency : frequencies) frequency /= 4;
  ExpectTable(rope, frequencies, 1);
}

TEST(Rope, C120_Llama3) {
  // The numbers of Llama 3.2 1B.
  const RopeConfig rope{.style = kernels::RopeStyle::kHalves,
                        .base = 500000,
                        .rotary_dim = 64,
                        .scaling = RopeScaling::kLlama3,
                        .factor = 32,
                        .low_frequency_factor = 1,
                        .high_frequency_factor = 4,
                        .original_max_positions = 8192};
  std::vector<Real> frequencies;
  int stretched = 0, kept = 0, blended = 0;
  for (const Real frequency : PlainFrequencies(rope)) {
    const Real wavelength = 2 * kPi / frequency;
    if (wavelength > 8192.0L / 1) {
      frequencies.push_back(frequency / 32);
      ++stretched;
    } else if (wavelength < 8192.0L / 4) {
      frequencies.push_back(frequency);
      ++kept;
    } else {
      const Real smooth = (8192 / wavelength - 1) / (4 - 1);
      frequencies.push_back((1 - smooth) * frequency / 32 + smooth * frequency);
      ++blended;
    }
  }
  EXPECT_GT(stretched, 0);
  EXPECT_GT(kept, 0);
  EXPECT_GT(blended, 0);
  ExpectTable(rope, frequencies, 1);
}

// The yarn formula with floor and ceil of the correction range.
std::vector<Real> YarnFrequencies(const RopeConfig& rope) {
  const auto correction = [&](Real rotations) {
    return rope.rotary_dim * std::log(rope.original_max_positions / (rotations * 2 * kPi)) /
           (2 * std::log(static_cast<Real>(rope.base)));
  };
  const Real low = std::max(std::floor(correction(rope.beta_fast)), Real{0});
  const Real high =
      std::min(std::ceil(correction(rope.beta_slow)), static_cast<Real>(rope.rotary_dim - 1));
  auto frequencies = PlainFrequencies(rope);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const Real ramp =
        std::min(std::max((static_cast<Real>(i) - low) / (high - low), Real{0}), Real{1});
    const Real extrapolation = 1 - ramp;
    frequencies[i] =
        frequencies[i] / rope.factor * (1 - extrapolation) + frequencies[i] * extrapolation;
  }
  return frequencies;
}

TEST(Rope, C120_Yarn) {
  RopeConfig rope{.base = 1000000,
                  .rotary_dim = 128,
                  .scaling = RopeScaling::kYarn,
                  .factor = 4,
                  .original_max_positions = 32768};
  ExpectTable(rope, YarnFrequencies(rope), 0.1L * std::log(4.0L) + 1);
  rope.attention_factor = 1.25;
  rope.beta_fast = 16;
  rope.beta_slow = 2;
  ExpectTable(rope, YarnFrequencies(rope), 1.25L);
}

TEST(Rope, FrequencyFactorsDivideTheFrequencies) {
  RopeConfig rope{.base = 500000, .rotary_dim = 8};
  rope.frequency_factors = {1, 1, 2.5F, 32};
  auto frequencies = PlainFrequencies(rope);
  frequencies[2] /= 2.5L;
  frequencies[3] /= 32;
  ExpectTable(rope, frequencies, 1);
}

TEST(Rope, RefusesNumbersOutOfRange) {
  const auto error = [](const RopeConfig& rope) {
    return std::string(CheckRope("file", rope).message());
  };
  EXPECT_EQ(error({.base = 10000, .rotary_dim = 8}), "");
  EXPECT_THAT(error({.base = 0}), testing::HasSubstr("base"));
  EXPECT_THAT(error({.base = 1}), testing::HasSubstr("base"));
  EXPECT_THAT(error({.base = NAN}), testing::HasSubstr("base"));
  EXPECT_THAT(error({.scaling = RopeScaling::kLinear, .factor = 0}), testing::HasSubstr("factor"));
  EXPECT_THAT(error({.scaling = RopeScaling::kLlama3, .factor = 8}),
              testing::HasSubstr("original context"));
  EXPECT_THAT(error({.scaling = RopeScaling::kLlama3,
                     .factor = 8,
                     .low_frequency_factor = 4,
                     .high_frequency_factor = 4,
                     .original_max_positions = 8192}),
              testing::HasSubstr("high frequency factor"));
  EXPECT_THAT(error({.scaling = RopeScaling::kYarn,
                     .factor = 8,
                     .original_max_positions = 8192,
                     .beta_fast = -1}),
              testing::HasSubstr("beta_fast"));
}

}  // namespace
}  // namespace quire::engine::model
