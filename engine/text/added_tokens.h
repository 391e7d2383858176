// Finds tokens that are matched as text before anything is split: control tokens, and what a model
// added to its vocabulary later. Follows Hugging Face's AddedVocabulary.
//
// Immutable once built; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace quire::engine::text {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool is_special = false;   // Found only where special tokens are parsed.
  bool single_word = false;  // Found only where no word character stands next to it.
  bool lstrip = false;       // Takes the white space before it,
  bool rstrip = false;       // and after it.
  bool normalized = false;   // Sought in the normalised text.
};

// Part [begin, end) of a text in which special tokens are recognised, or not.
struct TextRun {
  std::size_t begin = 0, end = 0;
  bool parse_special = false;
};

// The runs of [begin, end), counted from `begin`.
std::vector<TextRun> ClipRuns(std::span<const TextRun> runs, std::size_t begin, std::size_t end);

class AddedTokens {
 public:
  // A token found in a text, or (id -1) what lies between two.
  struct Part {
    std::size_t begin = 0, end = 0;
    TokenId id = -1;
  };

  // Longer ones are refused, so that finding them is linear in the text's length.
  static constexpr std::size_t kMaxContentBytes = 256;

  static absl::StatusOr<AddedTokens> Create(std::vector<AddedToken> tokens);

  // Cuts `text` at the tokens that lie whole in one of `runs`, which cover it in order. At each
  // place the longest wins; a special one that may not be recognised stays text, all of it.
  std::vector<Part> Split(std::string_view text, std::span<const TextRun> runs) const;

 private:
  explicit AddedTokens(std::vector<AddedToken> tokens);
  void AddToTrie(std::int32_t index);
  // The longest token that `text` begins with, or null.
  const AddedToken* LongestPrefix(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  // A trie: node * 256 + byte -> node. Node 0 is the root; token_at_[node] is an index or -1.
  absl::flat_hash_map<std::uint64_t, std::uint32_t> children_;
  std::vector<std::int32_t> token_at_;
  std::array<bool, 256> is_first_byte_{};
};

}  // namespace quire::engine::text
