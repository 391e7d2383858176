// One consistent snapshot of the block pool.
#pragma once

#include <cstdint>

namespace quire::block_manager {

struct BlockStats {
  std::int64_t capacity = 0;
  std::int32_t block_size = 0;
  // The three states; active + cached + free == capacity, always.
  std::int64_t active = 0;
  std::int64_t cached = 0;
  std::int64_t free = 0;
  // Of the cached blocks, those that sessions lease.
  std::int64_t leased = 0;
  std::int64_t sessions = 0;
  // Computed tokens of live sequences, counted once per physical block, out of active * block_size.
  std::int64_t useful_slots = 0;
  // Sum of all block tables' lengths: above `active` when blocks are shared.
  std::int64_t logical_blocks = 0;
  // Since start.
  std::int64_t evictions = 0;         // Cached content dropped to make room.
  std::int64_t evictions_leased = 0;  // Of these, content that a session lost for it.
  std::int64_t dropped_by_reset = 0;  // Cached content dropped by ResetPrefixCache.
  std::int64_t leases_expired = 0;
  std::int64_t leases_displaced = 0;  // Ended early: for newer leases, or for room.
  std::int64_t copies_on_write = 0;
  std::int64_t allocations = 0;
  std::int64_t peak_active = 0;
  friend bool operator==(const BlockStats&, const BlockStats&) = default;
};

}  // namespace quire::block_manager
