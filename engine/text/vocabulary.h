// What each token id stands for, in one allocation.
//
// Immutable once built; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quire::engine::text {

// GPT-2's reversible spelling of bytes: every byte is one printable character ("Ġ" is a space).
// Nullopt when a character of `spelling` stands for no byte.
std::optional<std::string> BytesFromSpelling(std::string_view spelling);

// Ids are bounded so that one id in a file cannot make the table huge.
inline constexpr TokenId kMaxTokenId = (1 << 24) - 1;

class Vocabulary {
 public:
  struct Entry {
    std::string bytes;
    bool is_special = false;
  };
  // entries[id]; holes are empty.
  explicit Vocabulary(const std::vector<Entry>& entries);

  std::int32_t size() const { return static_cast<std::int32_t>(is_special_.size()); }
  bool Contains(TokenId id) const { return id >= 0 && id < size(); }
  std::string_view Bytes(TokenId id) const;  // Empty outside the vocabulary.
  bool IsSpecial(TokenId id) const;

 private:
  std::string bytes_;
  std::vector<std::size_t> ends_;  // Of each token in bytes_.
  std::vector<bool> is_special_;
};

}  // namespace quire::engine::text
