#include "simulator/random.h"

#include <array>
#include <cmath>
#include <numbers>

#include "base/philox.h"

namespace quire::simulator {
namespace {

constexpr std::uint32_t Low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t High(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

// Tokens [4 * quarter, 4 * quarter + 4) of a stream.
std::array<std::uint32_t, 4> FourTokens(std::uint64_t stream, std::uint32_t branch,
                                        std::int32_t quarter) {
  return Philox4x32({static_cast<std::uint32_t>(quarter), 0, branch, 2},
                    {Low(stream), High(stream)});
}

TokenId TokenOf(const std::array<std::uint32_t, 4>& words, std::int32_t position) {
  return static_cast<TokenId>(words[static_cast<std::size_t>(position % 4)] >> 1);
}

}  // namespace

double Uniform(std::uint64_t seed, RandomUse use, std::uint64_t index) {
  return PhiloxUniform(seed, static_cast<std::uint32_t>(use), index);
}

double Normal(std::uint64_t seed, RandomUse use, std::uint64_t index) {
  const double radius = std::sqrt(-2 * std::log(Uniform(seed, use, 2 * index)));
  return radius * std::cos(2 * std::numbers::pi * Uniform(seed, use, 2 * index + 1));
}

std::uint64_t TokenStreamId(std::uint64_t seed, RandomUse use, std::uint64_t index) {
  const auto words = Philox4x32({Low(index), High(index), static_cast<std::uint32_t>(use), 1},
                                {Low(seed), High(seed)});
  return std::uint64_t{words[0]} << 32 | words[1];
}

void AppendStreamTokens(std::uint64_t stream, std::uint32_t branch, std::int32_t first,
                        std::int32_t count, std::vector<TokenId>* tokens) {
  std::array<std::uint32_t, 4> words{};
  for (std::int32_t i = first; i < first + count; ++i) {
    if (i == first || i % 4 == 0) words = FourTokens(stream, branch, i / 4);
    tokens->push_back(TokenOf(words, i));
  }
}

TokenId StreamToken(std::uint64_t stream, std::uint32_t branch, std::int32_t position) {
  return TokenOf(FourTokens(stream, branch, position / 4), position);
}

}  // namespace quire::simulator
