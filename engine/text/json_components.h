// The parts of tokenizer.json that are not the model: each reader takes the value of one top-level
// key (null: absent) and refuses what it does not know by name (UNIMPLEMENTED).
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/vocabulary_builder.h"
#include "nlohmann/json.hpp"

namespace quire::engine::text {

// NFC, NFD, NFKC, NFKD, Sequence.
absl::StatusOr<std::vector<NormalForm>> ReadNormalizer(const nlohmann::json* normalizer);

// Split, Digits, ByteLevel, Sequence. ByteLevel must come last, as bytes are what is merged.
absl::StatusOr<PreTokenizer> ReadPreTokenizer(const nlohmann::json* pre_tokenizer);

// ByteLevel alone, also as a Sequence of one.
absl::Status CheckDecoder(const nlohmann::json* decoder);

// Ids that surround one text when special tokens are added.
struct SpecialFrame {
  std::vector<TokenId> prefix, suffix;
};
// TemplateProcessing, ByteLevel (which adds nothing), Sequence.
absl::StatusOr<SpecialFrame> ReadPostProcessor(const nlohmann::json* post_processor,
                                               const VocabularyBuilder& vocabulary);

}  // namespace quire::engine::text
