// Workloads from files.
//
// A line is a request. Fields: "prompt_tokens" and "output_tokens" (numbers); optional are
// "arrival_s" (seconds from the start, 0 unless given), "n" (branches),
// "prefix" with "prefix_tokens" (requests with the same prefix name start with the same tokens),
// and "session": a request of a session starts with the whole text of the session's request before
// it, as far as its own prompt is long. JSON lines may give "prompt_ids" instead of prompt_tokens,
// prefix and session, and "output_ids" instead of output_tokens.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "simulator/request.h"

namespace quire::simulator {

enum class TraceFormat { kJsonLines, kCsv };

// `seed` names the tokens that the trace does not tell. Errors name the line and the field.
absl::StatusOr<std::vector<Request>> ParseTrace(std::string_view text, TraceFormat format,
                                                std::uint64_t seed);

}  // namespace quire::simulator
