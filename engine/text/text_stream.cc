#include "engine/text/text_stream.h"

#include <utility>

namespace quire::engine::text {

TextStream::TextStream(const Tokenizer& tokenizer, std::shared_ptr<const StopStrings> stop_strings,
                       const TextStreamOptions& options)
    : detokenizer_(tokenizer, options.special_tokens),
      stop_strings_(std::move(stop_strings)),
      min_tokens_(options.min_tokens) {
  if (stop_strings_ != nullptr && stop_strings_->size() > 0) {
    matcher_.emplace(stop_strings_, options.stop_in_output);
  }
}

std::optional<std::string> TextStream::Append(TokenId id, std::string& out) {
  ++num_tokens_;
  if (!matcher_) {
    detokenizer_.Append(id, out);
    return std::nullopt;
  }
  if (num_tokens_ > min_tokens_) matcher_->Arm();
  scratch_.clear();
  detokenizer_.Append(id, scratch_);
  const std::optional<std::size_t> stop = matcher_->Append(scratch_, out);
  if (!stop) return std::nullopt;
  stopped_ = true;
  return stop_strings_->string(*stop);
}

void TextStream::Finish(std::string& out) {
  if (stopped_) return;
  if (matcher_) matcher_->Release(out);
  detokenizer_.Flush(out);
}

}  // namespace quire::engine::text
