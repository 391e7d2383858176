// The one implementation of Tokenizer: added tokens, normalisation, splitting, byte-pair encoding.
// Readers of file formats fill in its parts.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "engine/text/added_tokens.h"
#include "engine/text/bpe.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

namespace quire::engine::text {

struct ByteLevelParts {
  Vocabulary vocabulary;
  AddedTokens added_as_written;  // Sought before normalisation,
  AddedTokens added_normalized;  // and after it.
  std::vector<NormalForm> normal_forms;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  std::vector<TokenId> prefix, suffix;  // What add_special puts around a text.
  std::optional<TokenId> bos, eos;
};

std::unique_ptr<Tokenizer> MakeByteLevelTokenizer(ByteLevelParts parts);

}  // namespace quire::engine::text
