// Collects tokens and merges as files spell them and makes the tokenizer's tables of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "engine/text/bpe.h"
#include "engine/text/vocabulary.h"

namespace quire::engine::text {

class VocabularyBuilder {
 public:
  // A token of the BPE model, in GPT-2's spelling; characters that spell no byte make it stand for
  // its own UTF-8. INVALID_ARGUMENT for an id that is out of bounds or taken. Of two tokens with
  // one spelling the later is the one found.
  absl::Status AddToken(TokenId id, std::string_view spelling);
  // A token that is found in text only as an added token; it may be in the model too. Returns the
  // id it has there, if so.
  absl::StatusOr<TokenId> AddAddedToken(TokenId id, std::string_view content, bool is_special);

  // INVALID_ARGUMENT, with the number of the merge, when one of the three tokens is missing.
  absl::Status AddMerge(std::string_view left, std::string_view right);
  // "left right"
  absl::Status AddMerge(std::string_view pair);

  std::optional<TokenId> Find(std::string_view spelling) const;
  bool Contains(TokenId id) const;

  Vocabulary MakeVocabulary() const { return Vocabulary(entries_); }
  struct BpeOptions {
    std::optional<Bpe::Unknown> unknown = std::nullopt;
    bool ignore_merges = false;
  };
  Bpe MakeBpe(const BpeOptions& options) const;

 private:
  absl::Status Insert(TokenId id, std::string_view spelling);

  std::vector<Vocabulary::Entry> entries_;
  std::vector<bool> is_taken_;
  absl::flat_hash_map<std::string, TokenId> ids_;        // By spelling; all tokens.
  absl::flat_hash_map<std::string, TokenId> model_ids_;  // By bytes; those that text can become.
  std::vector<Bpe::Merge> merges_;
};

}  // namespace quire::engine::text
