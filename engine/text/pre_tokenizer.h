// Cuts text into the pieces that byte-pair encoding treats one by one: a chain of splits, as the
// pre_tokenizer of tokenizer.json describes it.
//
// Immutable once built; any thread.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/text/regex.h"

namespace quire::engine::text {

// What becomes of the parts of the text that match (Hugging Face's SplitDelimiterBehavior).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// The expression that GPT-2, and ByteLevel with use_regex, split by.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct SplitRule {
  Regex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // Treat what does not match as the match.
};

class PreTokenizer {
 public:
  struct Part {
    std::string_view text;
    bool is_match;
  };
  struct Scratch {
    RegexScratch regex;
    std::vector<std::string_view> matches, pieces, next_pieces;
    std::vector<Part> parts;
    std::deque<std::string> prefixed;  // Pieces that did not stand in the text.
  };

  // Steps run in the order in which they were added, each on every piece of the one before.
  void AddSplit(SplitRule rule) { steps_.emplace_back(std::move(rule)); }
  // Puts a space before each piece that does not begin with one (ByteLevel's add_prefix_space).
  void AddPrefixSpace() { steps_.emplace_back(std::nullopt); }

  // Leaves the pieces of `text` in scratch.pieces, in order and without empty ones. They live as
  // long as `text` and until the scratch is used again. REQUIRES: `text` is UTF-8.
  absl::Status Split(std::string_view text, Scratch& scratch) const;

 private:
  static absl::Status SplitPiece(const SplitRule& rule, std::string_view piece, Scratch& scratch);

  std::vector<std::optional<SplitRule>> steps_;  // Nullopt: prefix a space.
};

}  // namespace quire::engine::text
