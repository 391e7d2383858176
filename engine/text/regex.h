// The regular expressions of tokenizer files (Oniguruma's dialect, as Hugging Face reads them) run
// by PCRE2: Unicode classes, lookahead, JIT, with limits on work and memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire::engine::text {

// What one thread needs while it matches; reused between calls.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Immutable; any thread.
class Regex {
 public:
  // UNIMPLEMENTED for syntax that means something else in the two dialects, and for a pattern that
  // can match nothing at all; INVALID_ARGUMENT for one that is malformed.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);

  // All matches in `text`, left to right, not overlapping. REQUIRES: `text` is UTF-8 (not checked).
  // RESOURCE_EXHAUSTED when the pattern needs too much work on this text.
  absl::Status FindAll(std::string_view text, RegexScratch& scratch,
                       std::vector<std::string_view>& matches) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code);
  std::shared_ptr<const Code> code_;
};

// The same expression in PCRE2's dialect: \s, \d and \w are spelt out as the Unicode properties
// that Oniguruma means (PCRE2 counts U+180E as a space). UNIMPLEMENTED names what has no equal.
absl::StatusOr<std::string> ToPcre2(std::string_view pattern);

// A pattern that matches exactly `text`.
std::string QuoteRegex(std::string_view text);

}  // namespace quire::engine::text
