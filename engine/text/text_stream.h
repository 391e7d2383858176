// The text of one branch as it grows: tokens in, text to send out, until a stop string is complete.
//
// What a stop string does to the output: the text ends before it (or with it, when asked for), also
// inside a token; the branch's token ids keep every token up to and including the one that
// completed it, and that token counts as output. Log-probabilities follow the token ids.
//
// For each token: when RequestSampling says kEos or kStopToken and the stop is not to be shown,
// call only Finish; else Append, and Finish when the branch ends. A stop string found by Append
// wins over a length limit that the same token reaches.
//
// Thread: one at a time (the engine thread). The tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"
#include "engine/text/detokenizer.h"
#include "engine/text/stop_matcher.h"
#include "engine/text/tokenizer.h"

namespace quire::engine::text {

struct TextStreamOptions {
  SpecialTokens special_tokens = SpecialTokens::kSkip;
  StopInOutput stop_in_output = StopInOutput::kExclude;
  std::int32_t min_tokens = 0;  // A stop string counts only when a later token completes it.
};

class TextStream {
 public:
  // `stop_strings` may be shared by branches; null: none.
  TextStream(const Tokenizer& tokenizer, std::shared_ptr<const StopStrings> stop_strings,
             const TextStreamOptions& options);

  // Takes the next token and appends to `out` the text that is now certain. Returns the stop string
  // that ends the text, if it does; then only Finish may follow, and it adds nothing.
  std::optional<std::string> Append(TokenId id, std::string& out);

  // The branch ended: appends all text still held back, incomplete characters as U+FFFD.
  void Finish(std::string& out);

 private:
  Detokenizer detokenizer_;
  std::shared_ptr<const StopStrings> stop_strings_;
  std::optional<StopMatcher> matcher_;
  std::int32_t min_tokens_;
  std::int32_t num_tokens_ = 0;
  bool stopped_ = false;
  std::string scratch_;
};

}  // namespace quire::engine::text
