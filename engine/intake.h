// From what a client sent to a request whose prompt is known: every check that needs no scheduler.
//
// Thread: immutable; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/request_state.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace quire::engine {

struct ContextLimits {
  std::int32_t max_model_len = 0;
  std::int64_t pool_tokens = 0;     // What a sequence may have in the KV blocks of the pool.
  std::int64_t session_blocks = 0;  // That sessions may lease; 0: none is kept.
};

// Scheduler::CheckFits: whether a prompt of so many tokens can ever run, on any thread.
using FitCheck = std::function<absl::Status(std::int64_t prompt_tokens, std::int32_t branches)>;

class Intake {
 public:
  static constexpr std::size_t kMaxRequestIdBytes = 256;
  static constexpr std::size_t kMaxCacheSaltBytes = 256;
  static constexpr std::size_t kMaxSessionIdBytes = 256;
  static constexpr std::size_t kMaxClientIdBytes = 256;

  // `tokenizer` and `chat_template` may be null.
  Intake(const EngineOptions& options, const ModelTraits& traits, std::int32_t vocab_size,
         const ContextLimits& limits, FitCheck check_fits,
         std::shared_ptr<const text::Tokenizer> tokenizer,
         std::shared_ptr<const text::ChatTemplate> chat_template);

  // What is wrong with a request in itself, whatever the server's limits; the field comes first in
  // the message. `params` are its sampling, resolved or not. `vocab_size`: the largest number where
  // the model is not known.
  static absl::Status CheckFields(const GenerationRequest& request,
                                  const sampling::SamplingParams& params, std::int32_t vocab_size);

  // Checks all fields and the prompt's size, and starts a request that still lacks what depends on
  // the prompt. Cheap. Errors name the field. `default_id` and `default_seed` are used where the
  // client gave none.
  absl::StatusOr<std::shared_ptr<Request>> Open(GenerationRequest request, std::string default_id,
                                                std::uint64_t default_seed,
                                                absl::Time arrival) const;

  // Whether the prompt is text, and how many bytes of it.
  static bool NeedsEncoding(const Request& request);
  static std::int64_t PromptBytes(const Request& request);
  // Tokens of the prompt: exact for ids, one per four bytes of text.
  static std::int64_t EstimatePromptTokens(const Request& request);

  // Encodes and truncates the prompt, refuses what can never fit (with both numbers), makes the
  // sampling state. Takes as long as the text needs. A prompt that continues a session is only
  // encoded and still needs Continue.
  absl::Status CompletePrompt(Request& request) const;
  // Puts the session's tokens before the prompt and does what CompletePrompt left.
  absl::Status Continue(Request& request, std::span<const TokenId> session_tokens) const;

  absl::StatusOr<std::vector<TokenId>> Encode(const TextPrompt& prompt) const;
  absl::StatusOr<std::vector<TokenId>> Encode(const ChatPrompt& prompt) const;

  const text::Tokenizer* tokenizer() const { return tokenizer_.get(); }

 private:
  absl::Status CheckLimits(const GenerationRequest& request,
                           const sampling::SamplingParams& params) const;
  absl::Status CheckLogprobs(const char* field, std::int32_t count) const;
  absl::Status CheckPrompt(const TextPrompt& prompt) const;
  absl::Status CheckPrompt(const TokenPrompt& prompt) const;
  absl::Status CheckPrompt(const ChatPrompt& prompt) const;
  absl::Status CheckBytes(std::int64_t bytes) const;
  void Truncate(const sampling::SamplingParams& params, std::vector<TokenId>& prompt) const;
  // What follows once the whole prompt is known and fits.
  absl::Status Finish(Request& request) const;

  const EngineOptions options_;
  const ModelTraits traits_;
  const sampling::SamplingModel model_;
  const ContextLimits limits_;
  const FitCheck check_fits_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const std::shared_ptr<const text::ChatTemplate> chat_template_;
};

}  // namespace quire::engine
