// The only place where quire.v1 messages and the engine's types meet.
//
// Ranges and meanings of sampling fields are the engine's to check (SamplingParams::Validate); here
// is refused what has no counterpart: no prompt, an unknown model, an id that cannot be logged.
// Errors start with the name of the field (see FieldOf in status.h).
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "block_manager/kv_event.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "engine/token_stream.h"
#include "quire/v1/generation.pb.h"
#include "quire/v1/stats.pb.h"

namespace quire::server {

// A request id or x-request-id: at most 128 printable ASCII characters without spaces.
bool IsPlainId(std::string_view id);

// `deadline` is on the engine's clock. NOT_FOUND for a model that is not `served_model_name`.
absl::StatusOr<engine::GenerationRequest> ToEngine(v1::GenerateRequest request,
                                                   std::string_view served_model_name,
                                                   absl::Time deadline);
engine::TextPrompt ToEngine(v1::TextPrompt prompt);
// INVALID_ARGUMENT for more messages than any conversation has.
absl::Status CheckChat(const v1::ChatPrompt& prompt);
engine::ChatPrompt ToEngine(v1::ChatPrompt prompt);

// The messages of a chunk, in stream order, each well under 4 MiB: positions with log-probabilities
// are spread over as many messages as they need. Accepted leaves out prompt_token_ids above
// 500 000 tokens.
std::vector<v1::GenerateResponse> ToResponses(std::string_view request_id,
                                              const engine::StreamChunk& chunk);

// The chunks of one request, joined into the answer of GenerateUnary.
class UnaryAnswer {
 public:
  void Add(std::string_view request_id, const engine::StreamChunk& chunk);
  // REQUIRES: the request has ended with OK.
  const v1::GenerateUnaryResponse& response() const { return response_; }

 private:
  v1::Completion& Branch(std::int32_t index);
  v1::GenerateUnaryResponse response_;
};

v1::Stats ToProto(const engine::EngineStats& stats, absl::Duration uptime);
v1::GetBlockMapResponse ToProto(const engine::BlockMap& map);
v1::KvEvent ToProto(const block_manager::KvEvent& event);

}  // namespace quire::server
