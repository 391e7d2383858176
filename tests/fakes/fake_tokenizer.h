// A byte tokenizer with two special tokens and a few words of the test's choice.
//
// Ids 0..255 are the bytes, 256 and 257 are the special tokens "<eos>" and "<eos2>", and from 258
// on come the words, which only Detokenize knows: Encode gives bytes, and special tokens where they
// are to be parsed.
#pragma once

#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace quire::fakes {

class FakeTokenizer final : public engine::text::Tokenizer {
 public:
  static constexpr TokenId kEos = 256;
  static constexpr TokenId kEos2 = 257;
  static constexpr TokenId kFirstWord = 258;

  explicit FakeTokenizer(std::vector<std::string> words = {}, std::int32_t vocab_size = 300);

  // The id of a word given to the constructor.
  TokenId Word(std::string_view word) const;

  absl::StatusOr<std::vector<TokenId>> Encode(
      std::string_view text, const engine::text::EncodeOptions& options) const override;
  absl::StatusOr<std::vector<TokenId>> EncodeSegments(
      std::span<const engine::text::PromptSegment> segments) const override;
  std::string_view TokenBytes(TokenId id) const override;
  bool IsSpecial(TokenId id) const override { return id == kEos || id == kEos2; }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(bytes_.size()); }
  bool adds_bos() const override { return false; }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  std::optional<TokenId> eos_id() const override { return kEos; }

 private:
  std::vector<std::string> bytes_;  // By id.
};

}  // namespace quire::fakes
