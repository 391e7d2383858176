#include "block_manager/prefix_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace quire::block_manager {

std::uint64_t HashPrefixKey(const PrefixKey& key, std::uint64_t seed) {
  constexpr std::uint64_t kOddMultiplier = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio.
  const std::uint64_t parent = std::uint64_t{key.parent.generation} << 32 |
                               static_cast<std::uint32_t>(key.parent.id.value());
  const std::uint64_t context = (seed ^ parent) * kOddMultiplier + key.salt.value();
  return XXH3_64bits_withSeed(key.tokens.data(), key.tokens.size_bytes(), context);
}

PrefixIndex::PrefixIndex(std::int64_t capacity, std::int32_t block_size, PrefixHash hash,
                         std::uint64_t seed, SaltRegistry* salts)
    : block_size_(block_size),
      hash_(hash),
      seed_(seed),
      salts_(salts),
      entries_(static_cast<std::size_t>(capacity)),
      tokens_(new TokenId[static_cast<std::size_t>(capacity * block_size)]),
      buckets_(static_cast<std::size_t>(capacity), kNone) {}

PrefixIndex::~PrefixIndex() {
  for (const Entry& e : entries_) {
    if (e.indexed) salts_->Release(e.salt);
  }
}

std::span<TokenId> PrefixIndex::tokens(BlockId id) const {
  const auto size = static_cast<std::size_t>(block_size_);
  return {tokens_.get() + static_cast<std::size_t>(id.value()) * size, size};
}

std::optional<BlockId> PrefixIndex::Find(const PrefixKey& key) const {
  return Find(key, static_cast<std::uint32_t>(hash_(key, seed_)));
}

std::optional<BlockId> PrefixIndex::Find(const PrefixKey& key, std::uint32_t hash) const {
  for (std::int32_t i = buckets_[BucketOf(hash)]; i != kNone;) {
    const BlockId id{i};
    const Entry& e = entry(id);
    if (e.hash == hash && e.salt == key.salt && e.parent == key.parent &&
        std::ranges::equal(tokens(id), key.tokens)) {
      return id;
    }
    i = e.next;
  }
  return std::nullopt;
}

BlockId PrefixIndex::FindOrInsert(const PrefixKey& key, BlockId candidate) {
  const auto hash = static_cast<std::uint32_t>(hash_(key, seed_));
  if (const std::optional<BlockId> found = Find(key, hash)) return *found;

  Entry& e = entry(candidate);
  QUIRE_DCHECK(!e.indexed) << "block " << candidate.value();
  std::int32_t& head = bucket(hash);
  if (head != kNone) entry(BlockId{head}).previous = candidate.value();
  e.previous = kNone;
  e.next = head;
  head = candidate.value();
  e.hash = hash;
  e.parent = key.parent;
  e.salt = key.salt;
  e.indexed = 1;
  salts_->AddUse(key.salt);
  std::ranges::copy(key.tokens, tokens(candidate).begin());
  ++size_;
  return candidate;
}

void PrefixIndex::Erase(BlockId id) {
  Entry& e = entry(id);
  QUIRE_DCHECK(e.indexed) << "block " << id.value();
  (e.previous == kNone ? bucket(e.hash) : entry(BlockId{e.previous}).next) = e.next;
  if (e.next != kNone) entry(BlockId{e.next}).previous = e.previous;
  e.indexed = 0;
  e.generation = (e.generation + 1) & 0x7FFFFFFF;
  salts_->Release(e.salt);
  --size_;
}

absl::Status PrefixIndex::Audit() const {
  std::int64_t indexed = 0;
  for (const Entry& e : entries_) indexed += e.indexed;
  if (indexed != size_) return Internal("{} blocks are indexed, not {}", indexed, size_);
  std::int64_t listed = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    std::int32_t previous = kNone;
    for (std::int32_t i = buckets_[b]; i != kNone; i = entry(BlockId{i}).next) {
      const Entry& e = entry(BlockId{i});
      if (!e.indexed || e.previous != previous || BucketOf(e.hash) != b || ++listed > indexed) {
        return Internal("the list of bucket {} is corrupt at block {}", b, i);
      }
      if (static_cast<std::uint32_t>(hash_(key(BlockId{i}), seed_)) != e.hash) {
        return Internal("block {} is listed under a wrong hash", i);
      }
      if (Find(key(BlockId{i})) != BlockId{i}) return Internal("block {} has a duplicate", i);
      previous = i;
    }
  }
  if (listed != indexed) return Internal("{} of {} indexed blocks are listed", listed, indexed);
  return absl::OkStatus();
}

}  // namespace quire::block_manager
