#include "engine/text/pre_tokenizer.h"

#include <optional>
#include <string>

#include "base/status.h"

namespace quire::engine::text {
namespace {

using Part = PreTokenizer::Part;

// Neighbours lie next to each other in one text.
std::string_view Joined(std::string_view left, std::string_view right) {
  return {left.data(), left.size() + right.size()};
}

// All of `piece`: its matches and what lies between them.
void CutAtMatches(std::string_view piece, const std::vector<std::string_view>& matches, bool invert,
                  std::vector<Part>& parts) {
  parts.clear();
  const char* at = piece.data();
  const auto add_up_to = [&](const char* end, bool is_match) {
    if (end != at) parts.push_back({{at, static_cast<std::size_t>(end - at)}, is_match != invert});
    at = end;
  };
  for (const std::string_view match : matches) {
    add_up_to(match.data(), false);
    add_up_to(match.data() + match.size(), true);
  }
  add_up_to(piece.data() + piece.size(), false);
}

// Which parts are joined to the one before them.
bool JoinsPrevious(SplitBehavior behavior, const Part& previous, const Part& part) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      return part.is_match && !previous.is_match;
    case SplitBehavior::kMergedWithNext:
      return previous.is_match && !part.is_match;
    case SplitBehavior::kContiguous:
      return part.is_match == previous.is_match;
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      return false;
  }
  return false;
}

}  // namespace

absl::Status PreTokenizer::SplitPiece(const SplitRule& rule, std::string_view piece,
                                      Scratch& scratch) {
  QUIRE_RETURN_IF_ERROR(rule.regex.FindAll(piece, scratch.regex, scratch.matches));
  CutAtMatches(piece, scratch.matches, rule.invert, scratch.parts);
  std::optional<Part> previous;
  for (const Part& part : scratch.parts) {
    if (previous && JoinsPrevious(rule.behavior, *previous, part)) {
      scratch.next_pieces.back() = Joined(scratch.next_pieces.back(), part.text);
    } else if (rule.behavior != SplitBehavior::kRemoved || !part.is_match) {
      scratch.next_pieces.push_back(part.text);
    }
    previous = part;
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::Split(std::string_view text, Scratch& scratch) const {
  scratch.prefixed.clear();
  scratch.pieces.clear();
  if (!text.empty()) scratch.pieces.push_back(text);
  for (const std::optional<SplitRule>& rule : steps_) {
    scratch.next_pieces.clear();
    for (const std::string_view piece : scratch.pieces) {
      if (rule) {
        QUIRE_RETURN_IF_ERROR(SplitPiece(*rule, piece, scratch));
      } else if (piece.starts_with(' ')) {
        scratch.next_pieces.push_back(piece);
      } else {
        scratch.next_pieces.push_back(scratch.prefixed.emplace_back(fmt::format(" {}", piece)));
      }
    }
    scratch.pieces.swap(scratch.next_pieces);
  }
  return absl::OkStatus();
}

}  // namespace quire::engine::text
