#include "tests/fakes/fake_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace quire::fakes {

FakeTokenizer::FakeTokenizer(std::vector<std::string> words, std::int32_t vocab_size) {
  for (int byte = 0; byte < 256; ++byte) bytes_.emplace_back(1, static_cast<char>(byte));
  bytes_.emplace_back("<eos>");
  bytes_.emplace_back("<eos2>");
  for (std::string& word : words) bytes_.push_back(std::move(word));
  bytes_.resize(static_cast<std::size_t>(vocab_size));
}

TokenId FakeTokenizer::Word(std::string_view word) const {
  const auto it = std::find(bytes_.begin() + kFirstWord, bytes_.end(), word);
  return static_cast<TokenId>(it - bytes_.begin());
}

absl::StatusOr<std::vector<TokenId>> FakeTokenizer::Encode(
    std::string_view text, const engine::text::EncodeOptions& options) const {
  std::vector<TokenId> ids;
  while (!text.empty()) {
    const auto special = [&](TokenId id) {
      const std::string& name = bytes_[static_cast<std::size_t>(id)];
      if (!options.parse_special || !text.starts_with(name)) return false;
      ids.push_back(id);
      text.remove_prefix(name.size());
      return true;
    };
    if (special(kEos) || special(kEos2)) continue;
    const auto byte = static_cast<unsigned char>(text.front());
    if (byte == 0xff) return InvalidArgument("the text is not UTF-8");
    ids.push_back(byte);
    text.remove_prefix(1);
  }
  return ids;
}

absl::StatusOr<std::vector<TokenId>> FakeTokenizer::EncodeSegments(
    std::span<const engine::text::PromptSegment> segments) const {
  std::vector<TokenId> ids;
  for (const engine::text::PromptSegment& segment : segments) {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<TokenId> part,
                           Encode(segment.text, {.parse_special = segment.from_template}));
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

std::string_view FakeTokenizer::TokenBytes(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return bytes_[static_cast<std::size_t>(id)];
}

}  // namespace quire::fakes
