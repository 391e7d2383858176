// Where the tokens of an admitted sequence come from, and why the cache did not have the rest.
#pragma once

#include <cstdint>

namespace quire::block_manager {

// All in tokens; their sum but for `hit_leased` is the length of the sequence. Hits come first:
// block hit / block_size is the first one missed. The misses are statistics, told apart by hashes
// and a bounded memory of what was cached; hits are exact and verified. Not for clients: it shows
// what was sent under salts that are not theirs.
struct PrefixReport {
  std::int32_t hit = 0;
  std::int32_t hit_leased = 0;  // Of these, what the sequence's own session had leased.

  std::int32_t never_seen = 0;
  std::int32_t evicted = 0;     // Was cached under this salt.
  std::int32_t other_salt = 0;  // Cached under other salts only.
  std::int32_t partial_block =
      0;                      // The last block, which is never looked up: a token is to compute.
  std::int32_t bypassed = 0;  // The cache was not asked.
  friend bool operator==(const PrefixReport&, const PrefixReport&) = default;
};

}  // namespace quire::block_manager
