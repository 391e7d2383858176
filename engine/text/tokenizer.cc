#include "engine/text/tokenizer.h"

#include <algorithm>

#include "base/status.h"
#include "engine/text/detokenizer.h"

namespace quire::engine::text {

std::string Decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                   bool skip_special_tokens) {
  Detokenizer detokenizer(tokenizer,
                          skip_special_tokens ? SpecialTokens::kSkip : SpecialTokens::kKeep);
  std::string text;
  for (const TokenId id : ids) detokenizer.Append(id, text);
  detokenizer.Flush(text);
  return text;
}

absl::StatusOr<std::vector<TokenId>> EncodeChat(const Tokenizer& tokenizer,
                                                const std::vector<PromptSegment>& segments) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer.EncodeSegments(segments));
  const bool has_bos = !ids.empty() && ids.front() == tokenizer.bos_id();
  if (tokenizer.adds_bos() && !has_bos) ids.insert(ids.begin(), *tokenizer.bos_id());
  return ids;
}

absl::Status CheckControlTokens(const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  for (const std::string& token : chat_template.control_tokens()) {
    QUIRE_ASSIGN_OR_RETURN(const auto ids, tokenizer.Encode(token, {.parse_special = true}));
    if (ids.size() == 1) continue;
    return FailedPrecondition(
        "chat template {} needs the control token {}, which this model's vocabulary lacks",
        chat_template.name(), token);
  }
  return absl::OkStatus();
}

}  // namespace quire::engine::text
