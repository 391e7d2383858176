// How far back a model looks in which every layer has a sliding window.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quire::block_manager {

struct SlidingWindow {
  std::int32_t tokens = 0;     // What a token sees, itself included; 0: all.
  std::int32_t max_chunk = 1;  // The most tokens that one step computes.

  // The first position that the token at `position`, and so all later ones, see.
  std::int32_t FirstSeen(std::int32_t position) const {
    return tokens == 0 ? 0 : std::max(0, position - tokens + 1);
  }
};

}  // namespace quire::block_manager
