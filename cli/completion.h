// A request's whole answer, put together from its stream, and its JSON form.
#pragma once

#include <nlohmann/json.hpp>

#include "quire/v1/generation.pb.h"

namespace quire::cli {

// Adds one message of the stream to the answer.
void Accumulate(const v1::GenerateResponse& response, v1::GenerateUnaryResponse* answer);

// One branch as an output line of `quire generate --json`:
//   {"request", "index", "token_ids", "text", "finish_reason", "usage": {"prompt_tokens",
//    "cached_tokens", "completion_tokens"}, "timings", "seed"}
// plus "logprobs" and "prompt_logprobs" when they were asked for, "stop_reason" (a text or a token
// id) and "detail" when there is one. Log-probabilities keep all bits of the 32-bit float.
nlohmann::ordered_json CompletionJson(int request, const v1::Completion& completion,
                                      const v1::GenerateUnaryResponse& answer);

}  // namespace quire::cli
