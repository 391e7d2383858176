// Finds the block that already holds given content: which full, computed block continues a given
// parent block with given tokens under a given salt.
//
// A hash only finds candidates; a hit is verified against salt, parent identity and tokens, so a
// hash that always collides costs time but never a wrong answer. The parent's identity stands for
// everything before the block: it was itself verified when it was found or inserted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "block_manager/cache_salt.h"

namespace quire::block_manager {

// One content of one block: the generation changes when the content is dropped, so an identity
// never comes to mean something else when the block is used again.
struct BlockIdentity {
  BlockId id{-1};
  std::uint32_t generation = 0;
  friend bool operator==(const BlockIdentity&, const BlockIdentity&) = default;
};

// The parent of a sequence's first block.
inline constexpr BlockIdentity kNoParent{};

struct PrefixKey {
  SaltId salt;
  BlockIdentity parent;
  std::span<const TokenId> tokens;  // [block_size]
};

using PrefixHash = std::uint64_t (*)(const PrefixKey& key, std::uint64_t seed);

// XXH3 over the tokens, seeded by everything else.
std::uint64_t HashPrefixKey(const PrefixKey& key, std::uint64_t seed);

// Ownership: owns a copy of the indexed tokens; borrows the salt registry, which outlives it. Knows
// nothing of owners or lists: whoever drops a block's content calls Erase first.
// Thread: the engine thread only.
// Cost: O(block_size) per call with a good hash, no heap allocation.
class PrefixIndex {
 public:
  PrefixIndex(std::int64_t capacity, std::int32_t block_size, PrefixHash hash, std::uint64_t seed,
              SaltRegistry* salts);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  std::optional<BlockId> Find(const PrefixKey& key) const;
  // Makes `candidate`, which is not indexed, findable under `key` and returns it; if a block is
  // found there already, changes nothing and returns that one.
  BlockId FindOrInsert(const PrefixKey& key, BlockId candidate);
  // Forgets an indexed block and ends its identity.
  void Erase(BlockId id);

  bool contains(BlockId id) const { return entry(id).indexed; }
  BlockIdentity identity(BlockId id) const { return {id, entry(id).generation}; }
  // Whether the content that had this identity is still indexed. kNoParent has none.
  bool contains(const BlockIdentity& identity) const {
    return identity != kNoParent && contains(identity.id) &&
           entry(identity.id).generation == identity.generation;
  }
  // What an indexed block was inserted under; the parent may have been erased since.
  PrefixKey key(BlockId id) const { return {entry(id).salt, entry(id).parent, tokens(id)}; }
  std::int64_t size() const { return size_; }

  static constexpr std::int64_t kBytesPerBlock = 32;  // An entry and a bucket.

  // Recounts everything from scratch; names the first thing that is wrong. O(capacity).
  absl::Status Audit() const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Entry {
    std::int32_t previous = kNone;  // In the bucket's list.
    std::int32_t next = kNone;
    std::uint32_t hash = 0;  // Chooses the bucket.
    BlockIdentity parent;
    SaltId salt;
    std::uint32_t generation : 31 = 0;
    std::uint32_t indexed : 1 = 0;
  };
  static_assert(sizeof(Entry) + sizeof(std::int32_t) == kBytesPerBlock);

  Entry& entry(BlockId id) { return entries_[static_cast<std::size_t>(id.value())]; }
  const Entry& entry(BlockId id) const { return entries_[static_cast<std::size_t>(id.value())]; }
  std::span<TokenId> tokens(BlockId id) const;
  std::size_t BucketOf(std::uint32_t hash) const {
    return (std::uint64_t{hash} * buckets_.size()) >> 32;
  }
  std::int32_t& bucket(std::uint32_t hash) { return buckets_[BucketOf(hash)]; }
  std::optional<BlockId> Find(const PrefixKey& key, std::uint32_t hash) const;

  const std::int32_t block_size_;
  const PrefixHash hash_;
  const std::uint64_t seed_;
  SaltRegistry* salts_;
  std::vector<Entry> entries_;         // [capacity]
  std::unique_ptr<TokenId[]> tokens_;  // [capacity][block_size], written when first indexed.
  std::vector<std::int32_t> buckets_;  // [capacity], the first block of each bucket's list.
  std::int64_t size_ = 0;
};

}  // namespace quire::block_manager
