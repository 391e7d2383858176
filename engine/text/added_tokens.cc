#include "engine/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "engine/text/characters.h"
#include "engine/text/utf8.h"

namespace quire::engine::text {
namespace {

// Begin of the white space that ends text[floor, end), and end of what begins text[begin, …).
std::size_t SpacesBefore(std::string_view text, std::size_t floor, std::size_t end) {
  while (end > floor) {
    const Character last = LastCharacter(text.substr(floor, end - floor));
    if (!IsWhiteSpace(last.code_point)) break;
    end -= last.bytes;
  }
  return end;
}
std::size_t SpacesAfter(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Character first = FirstCharacter(text.substr(begin));
    if (!IsWhiteSpace(first.code_point)) break;
    begin += first.bytes;
  }
  return begin;
}

bool StandsAlone(std::string_view text, std::size_t begin, std::size_t end) {
  return !IsWordCharacter(LastCharacter(text.substr(0, begin)).code_point) &&
         !IsWordCharacter(FirstCharacter(text.substr(end)).code_point);
}

}  // namespace

std::vector<TextRun> ClipRuns(std::span<const TextRun> runs, std::size_t begin, std::size_t end) {
  std::vector<TextRun> clipped;
  auto run = std::upper_bound(runs.begin(), runs.end(), begin,
                              [](std::size_t at, const TextRun& r) { return at < r.end; });
  for (; run != runs.end() && run->begin < end; ++run) {
    clipped.push_back(
        {std::max(run->begin, begin) - begin, std::min(run->end, end) - begin, run->parse_special});
  }
  return clipped;
}

absl::StatusOr<AddedTokens> AddedTokens::Create(std::vector<AddedToken> tokens) {
  std::erase_if(tokens, [](const AddedToken& token) { return token.content.empty(); });
  for (const AddedToken& token : tokens) {
    if (token.content.size() > kMaxContentBytes) {
      return InvalidArgument("added token {} has {} bytes, more than {}", token.id,
                             token.content.size(), kMaxContentBytes);
    }
    if (FindInvalidUtf8(token.content)) {
      return InvalidArgument("added token {} is not UTF-8", token.id);
    }
  }
  return AddedTokens(std::move(tokens));
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), token_at_(1, -1) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) AddToTrie(static_cast<std::int32_t>(i));
}

void AddedTokens::AddToTrie(std::int32_t index) {
  const std::string& content = tokens_[static_cast<std::size_t>(index)].content;
  is_first_byte_[static_cast<std::uint8_t>(content.front())] = true;
  std::uint32_t node = 0;
  for (const char c : content) {
    const auto next_node = static_cast<std::uint32_t>(token_at_.size());
    const auto [child, is_new] =
        children_.try_emplace(std::uint64_t{node} * 256 + static_cast<std::uint8_t>(c), next_node);
    if (is_new) token_at_.push_back(-1);
    node = child->second;
  }
  token_at_[node] = index;
}

const AddedToken* AddedTokens::LongestPrefix(std::string_view text) const {
  const AddedToken* longest = nullptr;
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto child = children_.find(std::uint64_t{node} * 256 + static_cast<std::uint8_t>(c));
    if (child == children_.end()) break;
    node = child->second;
    if (token_at_[node] >= 0) longest = &tokens_[static_cast<std::size_t>(token_at_[node])];
  }
  return longest;
}

std::vector<AddedTokens::Part> AddedTokens::Split(std::string_view text,
                                                  std::span<const TextRun> runs) const {
  std::vector<Part> parts;
  std::size_t taken = 0;  // Everything before this offset is in `parts`.
  for (const TextRun& run : runs) {
    std::size_t at = run.begin;
    while (at < run.end) {
      const AddedToken* token = is_first_byte_[static_cast<std::uint8_t>(text[at])]
                                    ? LongestPrefix(text.substr(at, run.end - at))
                                    : nullptr;
      if (token == nullptr) {
        ++at;
        continue;
      }
      std::size_t begin = at;
      std::size_t end = at + token->content.size();
      at = end;
      if (token->is_special && !run.parse_special) continue;
      if (token->single_word && !StandsAlone(text, begin, end)) continue;
      if (token->lstrip) begin = std::max(SpacesBefore(text, taken, begin), taken);
      if (token->rstrip) end = SpacesAfter(text, std::max(end, taken));
      if (taken < begin) parts.push_back({taken, begin, -1});
      parts.push_back({begin, end, token->id});
      taken = end;
    }
  }
  if (taken < text.size()) parts.push_back({taken, text.size(), -1});
  return parts;
}

}  // namespace quire::engine::text
