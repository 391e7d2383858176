#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace quire {
namespace {

using Counter = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

// Known answers of philox4x32 with 10 rounds from the Random123 distribution (kat_vectors).
TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32(Counter{0, 0, 0, 0}, Key{0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32(Counter{kOnes, kOnes, kOnes, kOnes}, Key{kOnes, kOnes}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32(Counter{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       Key{0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxUniform, IsTheTop53BitsOfTheFirstTwoWordsCentred) {
  const auto words = Philox4x32(Counter{7, 0, 3, 0}, Key{42, 0});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  EXPECT_EQ(PhiloxUniform(42, 3, 7), (static_cast<double>(bits) + 0.5) / 9007199254740992.0);
}

TEST(PhiloxUniform, UsesEveryBitOfItsArguments) {
  std::set<double> values;
  int draws = 0;
  for (int bit = 0; bit < 64; ++bit) {
    values.insert(PhiloxUniform(std::uint64_t{1} << bit, 0, 0));
    values.insert(PhiloxUniform(0, 0, std::uint64_t{1} << bit));
    draws += 2;
  }
  for (int bit = 0; bit < 32; ++bit) {
    values.insert(PhiloxUniform(0, std::uint32_t{1} << bit, 0));
    ++draws;
  }
  EXPECT_EQ(values.size(), static_cast<std::size_t>(draws));
}

TEST(PhiloxUniform, IsUniformInTheOpenUnitInterval) {
  constexpr int kDraws = 100'000;
  double sum = 0, sum_of_squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = PhiloxUniform(1, 0, static_cast<std::uint64_t>(i));
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    sum_of_squares += u * u;
  }
  const double mean = sum / kDraws;
  // Five standard errors: 1/sqrt(12 n) of the mean, about 1/sqrt(180 n) of the variance.
  EXPECT_NEAR(mean, 0.5, 5 / std::sqrt(12.0 * kDraws));
  EXPECT_NEAR(sum_of_squares / kDraws - mean * mean, 1.0 / 12, 5 / std::sqrt(180.0 * kDraws));
}

}  // namespace
}  // namespace quire
