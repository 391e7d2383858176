// A session is a conversation of several turns. When a turn is over, its blocks are leased: still
// Cached, but evicted only when nothing else is left, so that the next turn computes new tokens
// alone.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "block_manager/block_pool.h"
#include "block_manager/cache_salt.h"

namespace quire::block_manager {

// Sessions of different salts have nothing to do with each other.
struct SessionKey {
  std::string id;
  CacheSalt salt;
  friend bool operator==(const SessionKey&, const SessionKey&) = default;
  template <class H>
  friend H AbslHashValue(H state, const SessionKey& key) {
    return H::combine(std::move(state), key.id, key.salt);
  }
};

// Who leases what, and for how long. A lease ends when its session's next turn replaces it, when
// its time is over, when it is the oldest and all together exceed their limits, or when it is the
// oldest and the pool has no other block left to evict. It ends as a whole; its blocks then are
// ordinary Cached ones.
//
// Ownership: a lease owns no share of a block. Borrows the pool, which outlives it.
// Thread: the engine thread only.
// Invariants: (1) the leases of a block, as the pool counts them, are the sessions that list it.
// (2) At most `max_blocks` blocks have a lease. (3) Leases are listed oldest first, and expire in
// that order.
class SessionLeases {
 public:
  struct Limits {
    std::int64_t max_blocks = 0;  // With a lease, each counted once.
    std::int64_t max_tokens = 0;  // Kept for all sessions; a single one may exceed it.
    absl::Duration ttl;
  };
  SessionLeases(const Limits& limits, BlockPool* pool) : limits_(limits), pool_(pool) {}

  bool allowed() const { return limits_.max_blocks > 0; }

  // Leases the reusable `blocks`, the head of the sequence first, as many as the limit allows, and
  // keeps `tokens`, all of them. Replaces what the session had.
  // REQUIRES: allowed(); `now` never goes back.
  void Lease(const SessionKey& key, std::span<const BlockId> blocks,
             std::span<const TokenId> tokens, absl::Time now);
  // Returns whether there was a lease.
  bool End(const SessionKey& key);
  void EndAll();
  void EndExpired(absl::Time now);
  // Ends the oldest leases that have blocks until the pool has a Cached block without a lease.
  // REQUIRES: it has a Cached block.
  void MakeRoom();

  // Both empty without a lease; valid until the next call that changes something.
  std::optional<std::span<const TokenId>> Tokens(const SessionKey& key) const;
  std::span<const BlockId> Blocks(const SessionKey& key) const;

  struct View {
    const SessionKey& key;
    std::span<const BlockId> blocks;
    std::span<const TokenId> tokens;
    absl::Time expiry;
  };
  // Oldest first; valid until the next call that changes something.
  std::vector<View> All() const;

  std::int64_t size() const { return static_cast<std::int64_t>(leases_.size()); }
  absl::Time next_expiry() const;
  // Since start.
  std::int64_t expired() const { return expired_; }
  std::int64_t displaced() const { return displaced_; }  // For newer leases, or for room.

  // Recounts everything from scratch; names the first thing that is wrong. O(capacity).
  absl::Status Audit() const;

 private:
  struct SessionLease {
    SessionKey key;
    std::vector<BlockId> blocks;
    std::vector<TokenId> tokens;
    absl::Time expiry;
  };
  using Iterator = std::list<SessionLease>::iterator;

  const SessionLease* Find(const SessionKey& key) const;
  void End(Iterator lease, LeaseEnd why);
  bool IsOverLimit() const;

  const Limits limits_;
  BlockPool* pool_;
  std::list<SessionLease> leases_;  // Oldest first.
  absl::flat_hash_map<SessionKey, Iterator> by_key_;
  std::int64_t num_blocks_ = 0;
  std::int64_t num_tokens_ = 0;
  std::int64_t expired_ = 0;
  std::int64_t displaced_ = 0;
};

}  // namespace quire::block_manager
