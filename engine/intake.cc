#include "engine/intake.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/status.h"

namespace quire::engine {
namespace {

constexpr std::int64_t kBytesPerTokenGuess = 4;

std::int64_t BytesOf(const TextPrompt& prompt) {
  return static_cast<std::int64_t>(prompt.text.size());
}
std::int64_t BytesOf(const TokenPrompt&) { return 0; }
std::int64_t BytesOf(const ChatPrompt& prompt) {
  std::size_t bytes = 0;
  for (const text::ChatMessage& message : prompt.messages) {
    bytes += message.role.size() + message.content.size();
  }
  return static_cast<std::int64_t>(bytes);
}

absl::Status CheckLength(const char* field, const std::string& value, std::size_t max_bytes) {
  if (value.size() <= max_bytes) return absl::OkStatus();
  return InvalidArgument("{} has {} bytes, at most {} are allowed", field, value.size(), max_bytes);
}

absl::Status CheckSession(const GenerationRequest& request,
                          const sampling::SamplingParams& params) {
  if (!request.session_id.empty() && params.n != 1) {
    return InvalidArgument("n must be 1 with a session_id, got {}", params.n);
  }
  if (!request.continue_session) return absl::OkStatus();
  if (request.session_id.empty()) {
    return InvalidArgument("session_id is missing: continue_session needs one");
  }
  if (std::holds_alternative<ChatPrompt>(request.prompt)) {
    return InvalidArgument(
        "continue_session takes text or token_ids: a chat template renders whole conversations, so "
        "send all messages without it");
  }
  if (params.truncate_prompt_tokens) {
    return InvalidArgument("truncate_prompt_tokens cannot be used with continue_session");
  }
  return absl::OkStatus();
}

}  // namespace

Intake::Intake(const EngineOptions& options, const ModelTraits& traits, std::int32_t vocab_size,
               const ContextLimits& limits, FitCheck check_fits,
               std::shared_ptr<const text::Tokenizer> tokenizer,
               std::shared_ptr<const text::ChatTemplate> chat_template)
    : options_(options),
      traits_(traits),
      model_{.vocab_size = vocab_size,
             .max_model_len = limits.max_model_len,
             .eos_token_ids = traits.eos_token_ids},
      limits_(limits),
      check_fits_(std::move(check_fits)),
      tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)) {}

absl::StatusOr<std::shared_ptr<Request>> Intake::Open(GenerationRequest request,
                                                      std::string default_id,
                                                      std::uint64_t default_seed,
                                                      absl::Time arrival) const {
  sampling::SamplingParams params =
      sampling::Resolve(std::move(request.sampling), traits_.sampling_defaults);
  QUIRE_RETURN_IF_ERROR(CheckFields(request, params, model_.vocab_size));
  QUIRE_RETURN_IF_ERROR(CheckLimits(request, params));
  QUIRE_RETURN_IF_ERROR(
      std::visit([this](const auto& prompt) { return CheckPrompt(prompt); }, request.prompt));
  std::string id =
      request.request_id.empty() ? std::move(default_id) : std::move(request.request_id);
  auto opened = std::make_shared<Request>(std::make_shared<TokenStream>(std::move(id)));
  opened->input = std::move(request.prompt);
  opened->branches = params.n;
  opened->seed = params.seed.value_or(default_seed);
  opened->params = std::move(params);
  opened->priority = request.priority;
  opened->cache_salt = std::move(request.cache_salt);
  opened->bypass_prefix_cache = request.bypass_prefix_cache;
  opened->session_id = std::move(request.session_id);
  opened->continue_session = request.continue_session;
  opened->client_id = std::move(request.client_id);
  opened->arrival = arrival;
  opened->deadline = request.deadline;
  return opened;
}

absl::Status Intake::CheckFields(const GenerationRequest& request,
                                 const sampling::SamplingParams& params, std::int32_t vocab_size) {
  QUIRE_RETURN_IF_ERROR(CheckLength("request_id", request.request_id, kMaxRequestIdBytes));
  QUIRE_RETURN_IF_ERROR(CheckLength("cache_salt", request.cache_salt, kMaxCacheSaltBytes));
  QUIRE_RETURN_IF_ERROR(CheckLength("session_id", request.session_id, kMaxSessionIdBytes));
  QUIRE_RETURN_IF_ERROR(CheckLength("client_id", request.client_id, kMaxClientIdBytes));
  QUIRE_RETURN_IF_ERROR(params.Validate(vocab_size));
  return CheckSession(request, params);
}

absl::Status Intake::CheckLimits(const GenerationRequest& request,
                                 const sampling::SamplingParams& params) const {
  if (request.continue_session && limits_.session_blocks == 0) {
    return NotFound(
        "session_id: this server keeps no sessions (--session-cache-share); send the whole text");
  }
  const std::int32_t max_n = std::min(options_.max_n, options_.scheduler.max_num_seqs);
  if (params.n > max_n) {
    return InvalidArgument("n is {}, this server allows at most {}", params.n, max_n);
  }
  QUIRE_RETURN_IF_ERROR(CheckLogprobs("logprobs", params.logprobs.value_or(0)));
  QUIRE_RETURN_IF_ERROR(CheckLogprobs("prompt_logprobs", params.prompt_logprobs.value_or(0)));
  if (tokenizer_ == nullptr && !params.stop.empty()) {
    return InvalidArgument("stop needs a tokenizer and this model has none");
  }
  return absl::OkStatus();
}

absl::Status Intake::CheckLogprobs(const char* field, std::int32_t count) const {
  if (options_.max_logprobs < 0) return absl::OkStatus();
  const std::int32_t asked = count < 0 ? model_.vocab_size : count;
  if (asked <= options_.max_logprobs) return absl::OkStatus();
  return InvalidArgument("{} asks for {} entries, this server allows at most {} (--max-logprobs)",
                         field, asked, options_.max_logprobs);
}

absl::Status Intake::CheckPrompt(const TextPrompt& prompt) const {
  if (tokenizer_ == nullptr) {
    return FailedPrecondition("this model has no tokenizer: send token ids");
  }
  return CheckBytes(BytesOf(prompt));
}

absl::Status Intake::CheckPrompt(const ChatPrompt& prompt) const {
  if (tokenizer_ == nullptr) {
    return FailedPrecondition("this model has no tokenizer: send token ids");
  }
  if (chat_template_ == nullptr) {
    return FailedPrecondition("this model has no chat template that is understood");
  }
  if (prompt.messages.empty()) return InvalidArgument("chat.messages is empty");
  return CheckBytes(BytesOf(prompt));
}

absl::Status Intake::CheckPrompt(const TokenPrompt& prompt) const {
  if (prompt.ids.empty()) return InvalidArgument("token_ids is empty");
  for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
    if (prompt.ids[i] < 0 || prompt.ids[i] >= model_.vocab_size) {
      return InvalidArgument("token_ids[{}] is {}, outside the vocabulary of {}", i, prompt.ids[i],
                             model_.vocab_size);
    }
  }
  return absl::OkStatus();
}

absl::Status Intake::CheckBytes(std::int64_t bytes) const {
  if (bytes <= options_.max_prompt_bytes) return absl::OkStatus();
  return InvalidArgument("prompt has {} bytes, this server allows at most {}", bytes,
                         options_.max_prompt_bytes);
}

bool Intake::NeedsEncoding(const Request& request) {
  return !std::holds_alternative<TokenPrompt>(request.input);
}

std::int64_t Intake::PromptBytes(const Request& request) {
  return std::visit([](const auto& prompt) { return BytesOf(prompt); }, request.input);
}

std::int64_t Intake::EstimatePromptTokens(const Request& request) {
  if (const auto* tokens = std::get_if<TokenPrompt>(&request.input)) {
    return static_cast<std::int64_t>(tokens->ids.size());
  }
  return PromptBytes(request) / kBytesPerTokenGuess + 1;
}

absl::StatusOr<std::vector<TokenId>> Intake::Encode(const TextPrompt& prompt) const {
  QUIRE_RETURN_IF_ERROR(CheckPrompt(prompt));
  return tokenizer_->Encode(
      prompt.text, {.parse_special = prompt.parse_special, .add_special = prompt.add_special});
}

absl::StatusOr<std::vector<TokenId>> Intake::Encode(const ChatPrompt& prompt) const {
  QUIRE_RETURN_IF_ERROR(CheckPrompt(prompt));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<text::PromptSegment> segments,
                         chat_template_->Render(prompt.messages, /*add_generation_prompt=*/true));
  return text::EncodeChat(*tokenizer_, segments);
}

absl::Status Intake::CompletePrompt(Request& request) const {
  request.encoded_here = NeedsEncoding(request);
  if (const auto* prompt = std::get_if<TextPrompt>(&request.input)) {
    QUIRE_ASSIGN_OR_RETURN(request.prompt, Encode(*prompt));
  } else if (const auto* chat = std::get_if<ChatPrompt>(&request.input)) {
    QUIRE_ASSIGN_OR_RETURN(request.prompt, Encode(*chat));
  } else {
    request.prompt = std::move(std::get<TokenPrompt>(request.input).ids);
  }
  request.input = TokenPrompt();
  if (request.prompt.empty()) return InvalidArgument("prompt has no tokens");
  Truncate(request.params, request.prompt);
  QUIRE_RETURN_IF_ERROR(
      check_fits_(static_cast<std::int64_t>(request.prompt.size()), request.branches));
  return request.continue_session ? absl::OkStatus() : Finish(request);
}

absl::Status Intake::Continue(Request& request, std::span<const TokenId> session_tokens) const {
  const std::size_t num_new = request.prompt.size();
  const std::size_t num_tokens = session_tokens.size() + num_new;
  const absl::Status fits = check_fits_(static_cast<std::int64_t>(num_tokens), request.branches);
  if (!fits.ok()) {
    return InvalidArgument("continue_session: {} tokens of the session and {} new ones: {}",
                           session_tokens.size(), num_new, AsStd(fits.message()));
  }
  std::vector<TokenId> whole;
  whole.reserve(num_tokens);
  whole.assign(session_tokens.begin(), session_tokens.end());
  whole.insert(whole.end(), request.prompt.begin(), request.prompt.end());
  request.prompt = std::move(whole);
  return Finish(request);
}

absl::Status Intake::Finish(Request& request) const {
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t max_tokens = request.params.max_tokens.value_or(limits_.max_model_len);
  request.max_total_tokens = static_cast<std::int32_t>(
      std::min<std::int64_t>(prompt_tokens + max_tokens, limits_.max_model_len));
  if (!request.params.stop.empty()) {
    request.stop_strings = std::make_shared<const text::StopStrings>(request.params.stop);
  }
  QUIRE_ASSIGN_OR_RETURN(request.sampling, sampling::RequestSampling::Create(
                                               std::move(request.params), request.seed,
                                               request.prompt, model_, tokenizer_.get()));
  return absl::OkStatus();
}

void Intake::Truncate(const sampling::SamplingParams& params, std::vector<TokenId>& prompt) const {
  if (!params.truncate_prompt_tokens) return;
  std::int64_t keep = *params.truncate_prompt_tokens;
  if (keep < 0) {
    const std::int64_t context = std::min<std::int64_t>(limits_.max_model_len, limits_.pool_tokens);
    keep = std::max<std::int64_t>(context - params.max_tokens.value_or(1), 1);
  }
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length > keep) prompt.erase(prompt.begin(), prompt.begin() + (length - keep));
}

}  // namespace quire::engine
