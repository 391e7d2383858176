// JSON-lines files of requests, as `quire generate --input` reads them. A line is an object with
// one of "prompt" (text), "prompt_ids" (list of token ids) and "messages" (list of {"role",
// "content"}), and any field of request_fields.h:
//   {"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "quire/v1/generation.pb.h"

namespace quire::cli {

struct RequestLine {
  int line = 0;  // From 0, blank lines counted too.
  v1::GenerateRequest request;
};

// Every line that is not blank becomes a copy of `defaults` with the line's fields on top.
// INVALID_ARGUMENT naming file, line (from 1, as editors count) and key for anything else.
absl::StatusOr<std::vector<RequestLine>> ParseRequestLines(std::string_view content,
                                                           const std::string& file_name,
                                                           const v1::GenerateRequest& defaults);

// The same for files of {"text": …} (quire tokenize).
absl::StatusOr<std::vector<std::string>> ParseTextLines(std::string_view content,
                                                        const std::string& file_name);

}  // namespace quire::cli
