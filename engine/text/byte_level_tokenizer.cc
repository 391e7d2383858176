#include "engine/text/byte_level_tokenizer.h"

#include <string>
#include <utility>

#include "base/status.h"
#include "engine/text/utf8.h"

namespace quire::engine::text {
namespace {

class ByteLevelTokenizer final : public Tokenizer {
 public:
  explicit ByteLevelTokenizer(ByteLevelParts parts) : parts_(std::move(parts)) {}

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                              const EncodeOptions& options) const override;
  absl::StatusOr<std::vector<TokenId>> EncodeSegments(
      std::span<const PromptSegment> segments) const override;

  std::string_view TokenBytes(TokenId id) const override { return parts_.vocabulary.Bytes(id); }
  bool IsSpecial(TokenId id) const override { return parts_.vocabulary.IsSpecial(id); }
  std::int32_t vocab_size() const override { return parts_.vocabulary.size(); }
  bool adds_bos() const override {
    return parts_.bos && !parts_.prefix.empty() && parts_.prefix.front() == *parts_.bos;
  }
  std::optional<TokenId> bos_id() const override { return parts_.bos; }
  std::optional<TokenId> eos_id() const override { return parts_.eos; }

 private:
  struct Scratch {
    PreTokenizer::Scratch pre_tokenizer;
    BpeScratch bpe;
  };
  // REQUIRES: `text` is UTF-8, also cut at the runs.
  absl::StatusOr<std::vector<TokenId>> EncodeRuns(std::string_view text,
                                                  std::span<const TextRun> runs) const;
  // Text in which no added token is sought before normalisation any more.
  absl::Status EncodePlain(std::string_view text, std::span<const TextRun> runs, Scratch& scratch,
                           std::vector<TokenId>& ids) const;
  // Run by run, so that the borders are still known.
  std::string NormalizeRuns(std::string_view text, std::vector<TextRun>& runs) const;

  const ByteLevelParts parts_;
};

absl::StatusOr<std::vector<TokenId>> ByteLevelTokenizer::Encode(
    std::string_view text, const EncodeOptions& options) const {
  if (const auto offset = FindInvalidUtf8(text)) {
    return InvalidArgument("text is not UTF-8 at byte {}", *offset);
  }
  const TextRun run{0, text.size(), options.parse_special};
  QUIRE_ASSIGN_OR_RETURN(std::vector<TokenId> ids, EncodeRuns(text, {&run, 1}));
  if (!options.add_special) return ids;
  const bool has_bos = adds_bos() && !ids.empty() && ids.front() == *parts_.bos;
  ids.insert(ids.begin(), parts_.prefix.begin() + (has_bos ? 1 : 0), parts_.prefix.end());
  ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return ids;
}

absl::StatusOr<std::vector<TokenId>> ByteLevelTokenizer::EncodeSegments(
    std::span<const PromptSegment> segments) const {
  std::string text;
  std::vector<TextRun> runs;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const PromptSegment& segment = segments[i];
    if (const auto offset = FindInvalidUtf8(segment.text)) {
      return InvalidArgument("segment {} of the prompt is not UTF-8 at byte {}", i, *offset);
    }
    if (segment.text.empty()) continue;
    const std::size_t begin = text.size();
    text += segment.text;
    if (!runs.empty() && runs.back().parse_special == segment.from_template) {
      runs.back().end = text.size();
    } else {
      runs.push_back({begin, text.size(), segment.from_template});
    }
  }
  return EncodeRuns(text, runs);
}

absl::StatusOr<std::vector<TokenId>> ByteLevelTokenizer::EncodeRuns(
    std::string_view text, std::span<const TextRun> runs) const {
  Scratch scratch;
  std::vector<TokenId> ids;
  for (const AddedTokens::Part& part : parts_.added_as_written.Split(text, runs)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    const std::string_view plain = text.substr(part.begin, part.end - part.begin);
    std::vector<TextRun> plain_runs = ClipRuns(runs, part.begin, part.end);
    if (parts_.normal_forms.empty()) {
      QUIRE_RETURN_IF_ERROR(EncodePlain(plain, plain_runs, scratch, ids));
    } else {
      const std::string normalized = NormalizeRuns(plain, plain_runs);
      QUIRE_RETURN_IF_ERROR(EncodePlain(normalized, plain_runs, scratch, ids));
    }
  }
  return ids;
}

absl::Status ByteLevelTokenizer::EncodePlain(std::string_view text, std::span<const TextRun> runs,
                                             Scratch& scratch, std::vector<TokenId>& ids) const {
  for (const AddedTokens::Part& part : parts_.added_normalized.Split(text, runs)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    QUIRE_RETURN_IF_ERROR(parts_.pre_tokenizer.Split(text.substr(part.begin, part.end - part.begin),
                                                     scratch.pre_tokenizer));
    for (const std::string_view piece : scratch.pre_tokenizer.pieces) {
      parts_.bpe.Encode(piece, scratch.bpe, ids);
    }
  }
  return absl::OkStatus();
}

std::string ByteLevelTokenizer::NormalizeRuns(std::string_view text,
                                              std::vector<TextRun>& runs) const {
  std::string normalized;
  for (TextRun& run : runs) {
    std::string piece(text.substr(run.begin, run.end - run.begin));
    for (const NormalForm form : parts_.normal_forms) piece = Normalize(piece, form);
    run.begin = normalized.size();
    normalized += piece;
    run.end = normalized.size();
  }
  return normalized;
}

}  // namespace

std::unique_ptr<Tokenizer> MakeByteLevelTokenizer(ByteLevelParts parts) {
  return std::make_unique<ByteLevelTokenizer>(std::move(parts));
}

}  // namespace quire::engine::text
