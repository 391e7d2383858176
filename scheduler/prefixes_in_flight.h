// The prompts that running sequences are computing just now, so that a waiting sequence with the
// same beginning can wait for their blocks instead of computing them again.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/sequence.h"

namespace quire::scheduler {

// Ownership: borrows the sequences, for one step.
// Cost: Find compares with at most kMaxCompared sequences that share the first block.
class PrefixesInFlight {
 public:
  explicit PrefixesInFlight(std::int32_t block_size) : block_size_(block_size) {}

  void Clear() { entries_.clear(); }
  // Ignores a sequence that will complete no further full block by prefilling.
  void Add(const Sequence* sequence);

  struct Prefix {
    const Sequence* computing = nullptr;
    std::int32_t num_tokens = 0;  // Of its full blocks that a sequence can start with.
  };
  // The longest prefix of `waiting` of which a sequence of its class, or of a more urgent one, has
  // yet to compute a part. Verified: equal salts, equal tokens.
  Prefix Find(const Sequence& waiting) const;

  // Whether a sequence prefills and its first `num_tokens` tokens are not all computed yet.
  static bool IsComputing(const Sequence& sequence, std::int32_t num_tokens) {
    return sequence.running && !sequence.decoding && sequence.num_computed_tokens() < num_tokens;
  }

 private:
  static constexpr int kMaxCompared = 16;

  std::int32_t WholeBlocks(std::int32_t num_tokens) const {
    return num_tokens - num_tokens % block_size_;
  }

  struct Entry {
    std::uint64_t first_block_hash;
    const Sequence* sequence;
  };
  std::int32_t block_size_;
  std::vector<Entry> entries_;
};

}  // namespace quire::scheduler
