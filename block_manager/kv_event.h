// What happened to the prefix cache, for whoever routes requests by it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace quire::block_manager {

struct KvEvent {
  enum class Kind : std::uint8_t {
    kStored,   // A block of content can be found.
    kRemoved,  // It no longer can.
    kCleared,  // Nothing can; replaces the single removals.
  };
  Kind kind = Kind::kCleared;
  // Names one content of one block and nothing else as long as the manager lives. A content that is
  // computed again after its removal gets another name.
  std::uint64_t block_hash = 0;
  // Of kStored alone. No parent: the block begins a prefix.
  std::optional<std::uint64_t> parent_hash = std::nullopt;
  std::vector<TokenId> tokens = {};  // [block_size]; a salted block tells none of its tokens.
  bool salted = false;
  friend bool operator==(const KvEvent&, const KvEvent&) = default;
};

}  // namespace quire::block_manager
