// Remembers which contents were cached lately, and under which salts, to tell why a sequence did
// not find one. For statistics alone: contents are told apart by hashes, and old ones are
// forgotten.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace quire::block_manager {

// Names all tokens of a prefix, whatever the salt.
using ContentHash = std::uint64_t;
inline constexpr ContentHash kEmptyPrefix = 0;

// Ownership: borrows nothing.
// Thread: the engine thread only.
// Cost: every call is O(1) but for the hash of the tokens, and none but the constructor allocates.
class ContentHistory {
 public:
  // Remembers about as many contents as the pool has blocks.
  explicit ContentHistory(std::int64_t capacity);

  // The hash of `prefix` and one more block.
  static ContentHash Extend(ContentHash prefix, std::span<const TokenId> tokens);

  // A block now holds a content, cached under a salt.
  void Store(BlockId id, ContentHash content, std::uint32_t salt_tag);
  // The content of a block was used, or is about to be dropped: forget it later than others.
  void Touch(BlockId id, std::uint32_t salt_tag) { Note(content(id), salt_tag); }
  // The content last stored in a block.
  ContentHash content(BlockId id) const { return contents_[static_cast<std::size_t>(id.value())]; }

  enum class Memory : std::uint8_t { kNone, kUnderThisSalt, kUnderOtherSalts };
  Memory Recall(ContentHash content, std::uint32_t salt_tag) const;

  static constexpr std::int64_t kBytesPerBlock = sizeof(ContentHash) + 8;  // And one record.

 private:
  struct Record {
    std::uint32_t content = 0;  // The high half of the hash, made odd; 0: no record.
    std::uint32_t salt_tag = 0;
    friend bool operator==(const Record&, const Record&) = default;
  };
  static_assert(sizeof(ContentHash) + sizeof(Record) == kBytesPerBlock);
  // One cache line; the record noted last stands first, and pushes the last one out.
  using Set = std::array<Record, 8>;
  // What a small pool evicts within seconds is worth remembering, too.
  static constexpr std::int64_t kMinSets = 1024;

  void Note(ContentHash content, std::uint32_t salt_tag);
  std::size_t SetOf(ContentHash content) const;

  std::vector<ContentHash> contents_;  // [capacity]
  std::vector<Set> sets_;
};

}  // namespace quire::block_manager
