// Finds stop strings in text that arrives in pieces, wherever the pieces are cut, and holds back
// exactly what may still become one.
//
// The match that is complete first wins, whatever the order of the strings; of several complete at
// the same byte, the longest. So "ab" beats "abc", and "abc" beats "bc".
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::engine::text {

// The strings to look for, with their search tables (Knuth, Morris, Pratt). Immutable; any thread.
class StopStrings {
 public:
  // REQUIRES: valid UTF-8, none empty (SamplingParams::Validate bounds number and length).
  explicit StopStrings(std::vector<std::string> strings);

  std::size_t size() const { return strings_.size(); }
  const std::string& string(std::size_t i) const { return strings_[i]; }
  // Bytes of string i matched after `byte`, when `matched` bytes (< its length) were before it.
  std::size_t Next(std::size_t i, std::size_t matched, char byte) const;
  // Bytes of string i that a whole match of it already gives to the next one.
  std::size_t Restart(std::size_t i) const { return borders_[i].back(); }

 private:
  std::vector<std::string> strings_;
  // borders_[i][k]: length of the longest proper prefix of string i that ends its first k bytes.
  std::vector<std::vector<std::size_t>> borders_;
};

enum class StopInOutput { kExclude, kInclude };

// Thread: one at a time.
class StopMatcher {
 public:
  StopMatcher(std::shared_ptr<const StopStrings> strings, StopInOutput stop_in_output);

  // From now on a complete stop string ends the text; before, it passes (min_tokens).
  void Arm() { armed_ = true; }

  // Takes the next text and appends to `out` what can be released. On a match returns the string's
  // index: the text ends there, the rest is dropped, and only Release may follow (it adds nothing).
  // With kInclude nothing is ever held back and the stop string itself is put out.
  std::optional<std::size_t> Append(std::string_view text, std::string& out);

  // The text ended without a match: appends what was held back.
  void Release(std::string& out);

 private:
  std::optional<std::size_t> Step(char byte);

  std::shared_ptr<const StopStrings> strings_;
  StopInOutput stop_in_output_;
  bool armed_ = false;
  std::vector<std::size_t> matched_;  // Per string: bytes of it that end the text so far.
  std::string held_;                  // Taken but not yet put out.
};

}  // namespace quire::engine::text
