#include "engine/text/detokenizer.h"

namespace quire::engine::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, SpecialTokens special_tokens)
    : tokenizer_(&tokenizer), special_tokens_(special_tokens) {}

void Detokenizer::Append(TokenId id, std::string& out) {
  if (special_tokens_ == SpecialTokens::kSkip && tokenizer_->IsSpecial(id)) return;
  repairer_.Append(tokenizer_->TokenBytes(id), out);
}

void Detokenizer::Flush(std::string& out) { repairer_.Flush(out); }

}  // namespace quire::engine::text
