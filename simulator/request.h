// One request of a workload. Prompts are kept as runs of named token rows, not as tokens, so that
// a workload of a million requests fits into memory and still says exactly who shares what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"

namespace quire::simulator {

// The first `length` tokens of a token row.
struct Segment {
  std::uint64_t stream = 0;
  std::uint32_t branch = 0;
  std::int32_t length = 0;
};

inline constexpr std::int32_t kNoRequest = -1;

struct Request {
  // When it comes: counted from the start or, with `after`, from the end of that request (the
  // turn before it in a conversation).
  absl::Duration arrival = absl::ZeroDuration();
  std::int32_t after = kNoRequest;  // Index of an earlier request.

  std::vector<Segment> prompt = {};
  std::vector<TokenId> prompt_ids = {};  // Instead of `prompt`, when the tokens are known.
  std::int32_t output_len = 1;           // Tokens of every branch's answer, exactly.
  std::int32_t num_branches = 1;
  std::string session = {};  // Whose turn it is: leases its blocks for the next. Empty: nobody's.
  std::uint64_t output_stream = 0;
  std::vector<TokenId> output_ids = {};  // Instead of the row; of branch 0 only.

  std::int32_t prompt_len() const;
  std::int32_t total_len() const { return prompt_len() + output_len; }
  std::vector<TokenId> PromptTokens() const;
  // Token `position` of the answer of a branch.
  TokenId OutputToken(std::int32_t branch, std::int32_t position) const;
};

}  // namespace quire::simulator
