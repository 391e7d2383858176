// Random numbers of the simulator: pure functions of a seed and a place, on Philox.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace quire::simulator {

// What a number is drawn for, so that no two purposes share one.
enum class RandomUse : std::uint32_t {
  kArrival = 1,
  kInputLength,
  kOutputLength,
  kPrefixChoice,
  kThinkTime,
  kPromptStream,
  kPrefixStream,
  kOutputStream,
};

// Uniform in (0, 1).
double Uniform(std::uint64_t seed, RandomUse use, std::uint64_t index);
// Standard normal (Box and Muller).
double Normal(std::uint64_t seed, RandomUse use, std::uint64_t index);
// The name of an endless row of tokens.
std::uint64_t TokenStreamId(std::uint64_t seed, RandomUse use, std::uint64_t index);

// Tokens [first, first + count) of a stream. Every branch of a request has its own.
void AppendStreamTokens(std::uint64_t stream, std::uint32_t branch, std::int32_t first,
                        std::int32_t count, std::vector<TokenId>* tokens);

// Token `position` of the same.
TokenId StreamToken(std::uint64_t stream, std::uint32_t branch, std::int32_t position);

}  // namespace quire::simulator
