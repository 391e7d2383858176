// What a client asks for, in the engine's own words. The server converts its protos to this once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/sampling/sampling_params.h"
#include "engine/text/chat_template.h"

namespace quire::engine {

struct TextPrompt {
  std::string text;
  bool parse_special = false;  // Control tokens in `text` become control ids.
  bool add_special = true;     // BOS / EOS as the tokenizer's own rules say.
};
struct TokenPrompt {
  std::vector<TokenId> ids;
};
struct ChatPrompt {
  std::vector<text::ChatMessage> messages;
};

struct GenerationRequest {
  std::string request_id;  // Empty: the engine makes one. Must not be in use by a live request.
  std::variant<TextPrompt, TokenPrompt, ChatPrompt> prompt;
  sampling::SamplingParams sampling;
  std::int32_t priority = 0;                     // Lower is more urgent (priority policy only).
  absl::Time deadline = absl::InfiniteFuture();  // On the engine's Clock.
  std::string cache_salt;
  bool bypass_prefix_cache = false;
  // Keeps the answer's blocks for the next turn of the same session and cache_salt. n must be 1.
  std::string session_id;
  // The prompt follows the session's last turn. Not for chat prompts.
  bool continue_session = false;
  std::string client_id;  // Whose share this is (SchedulerOptions::client_quantum).
};

enum class FinishReason { kStop, kLength };

// What a stop was caused by; kStop only.
struct MatchedStop {
  std::optional<TokenId> eos_token_id;
  std::optional<TokenId> stop_token_id;
  std::optional<std::string> stop_string;
};

}  // namespace quire::engine
