#include "engine/text/vocabulary_builder.h"

#include <array>
#include <utility>

#include "base/status.h"

namespace quire::engine::text {

absl::Status VocabularyBuilder::Insert(TokenId id, std::string_view spelling) {
  if (id < 0 || id > kMaxTokenId) {
    return InvalidArgument("token \"{}\" has id {}, outside [0, {}]", spelling, id, kMaxTokenId);
  }
  const auto i = static_cast<std::size_t>(id);
  if (i >= entries_.size()) {
    entries_.resize(i + 1);
    is_taken_.resize(i + 1, false);
  }
  if (is_taken_[i]) return InvalidArgument("token \"{}\" has id {}, which is taken", spelling, id);
  is_taken_[i] = true;
  entries_[i].bytes = BytesFromSpelling(spelling).value_or(std::string(spelling));
  ids_.insert_or_assign(std::string(spelling), id);
  return absl::OkStatus();
}

absl::Status VocabularyBuilder::AddToken(TokenId id, std::string_view spelling) {
  QUIRE_RETURN_IF_ERROR(Insert(id, spelling));
  if (std::optional<std::string> bytes = BytesFromSpelling(spelling)) {
    model_ids_.insert_or_assign(*std::move(bytes), id);
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenId> VocabularyBuilder::AddAddedToken(TokenId id, std::string_view content,
                                                         bool is_special) {
  if (const std::optional<TokenId> known = Find(content)) {
    id = *known;
  } else {
    QUIRE_RETURN_IF_ERROR(Insert(id, content));
  }
  entries_[static_cast<std::size_t>(id)].is_special = is_special;
  return id;
}

std::optional<TokenId> VocabularyBuilder::Find(std::string_view spelling) const {
  const auto found = ids_.find(AsAbsl(spelling));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

bool VocabularyBuilder::Contains(TokenId id) const {
  return id >= 0 && static_cast<std::size_t>(id) < is_taken_.size() &&
         is_taken_[static_cast<std::size_t>(id)];
}

absl::Status VocabularyBuilder::AddMerge(std::string_view left, std::string_view right) {
  const std::string joined = std::string(left) + std::string(right);
  const std::optional<TokenId> ids[] = {Find(left), Find(right), Find(joined)};
  for (std::size_t i = 0; i < 3; ++i) {
    if (ids[i]) continue;
    return InvalidArgument(
        "merge {} (\"{}\" \"{}\") needs token \"{}\", which is not in the vocabulary",
        merges_.size(), left, right,
        i == 0   ? left
        : i == 1 ? right
                 : joined);
  }
  merges_.push_back({*ids[0], *ids[1], *ids[2]});
  return absl::OkStatus();
}

absl::Status VocabularyBuilder::AddMerge(std::string_view pair) {
  const std::size_t space = pair.find(' ');
  if (space == std::string_view::npos || pair.find(' ', space + 1) != std::string_view::npos) {
    return InvalidArgument("merge {} is \"{}\", not two tokens and a space", merges_.size(), pair);
  }
  return AddMerge(pair.substr(0, space), pair.substr(space + 1));
}

Bpe VocabularyBuilder::MakeBpe(const BpeOptions& options) const {
  std::array<TokenId, 256> byte_ids;
  for (std::size_t byte = 0; byte < byte_ids.size(); ++byte) {
    const auto found = model_ids_.find(std::string(1, static_cast<char>(byte)));
    byte_ids[byte] = found == model_ids_.end() ? -1 : found->second;
  }
  Bpe bpe(byte_ids, merges_, options.unknown);
  if (options.ignore_merges) bpe.SetWholePieces(model_ids_);
  return bpe;
}

}  // namespace quire::engine::text
