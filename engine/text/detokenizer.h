// Token ids of one growing sequence to text, whole characters only. The joined output of Append and
// Flush is Decode of all ids, whatever the token borders.
//
// Thread: one at a time. The tokenizer must outlive it.
#pragma once

#include <string>

#include "base/ids.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace quire::engine::text {

enum class SpecialTokens { kKeep, kSkip };

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, SpecialTokens special_tokens);

  // Appends to `out` the characters that `id` completes; none while bytes are pending.
  void Append(TokenId id, std::string& out);
  // Ends the sequence: bytes still pending become U+FFFD.
  void Flush(std::string& out);

 private:
  const Tokenizer* tokenizer_;
  SpecialTokens special_tokens_;
  Utf8Repairer repairer_;
};

}  // namespace quire::engine::text
