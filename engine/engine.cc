#include "engine/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "base/status.h"
#include "engine/engine_loop.h"
#include "engine/intake.h"
#include "engine/mailbox.h"
#include "engine/request_ledger.h"
#include "engine/seed_source.h"
#include "engine/stats_board.h"
#include "engine/text_pool.h"

namespace quire::engine {
namespace {

// After a drain's grace: how long the aborted requests may take, a step at most.
constexpr absl::Duration kAbortGrace = absl::Seconds(30);

constexpr absl::Duration kMinRetryAfter = absl::Milliseconds(50);
constexpr absl::Duration kMaxRetryAfter = absl::Seconds(30);
constexpr absl::Duration kDefaultRetryAfter = absl::Seconds(1);

ContextLimits LimitsOf(const EngineOptions& options, const ModelRunner& runner) {
  const std::int32_t max_model_len = options.scheduler.max_model_len;
  const std::int64_t slots = runner.num_blocks() * runner.kv_geometry().block_size;
  // With a window a sequence holds only its end.
  return {.max_model_len = max_model_len,
          .pool_tokens = options.scheduler.sliding_window > 0 ? max_model_len : slots,
          .session_blocks = options.max_session_blocks(runner.num_blocks())};
}

template <class T>
absl::StatusOr<T> Await(Mailbox& mailbox, const std::shared_ptr<Reply<T>>& reply, Mail mail,
                        absl::Duration timeout) {
  if (!mailbox.Send(std::move(mail))) return Unavailable("the engine was shut down");
  if (!reply->ready.WaitForNotificationWithTimeout(timeout)) {
    return absl::DeadlineExceededError("the engine did not answer in time");
  }
  return std::move(reply->value);
}

}  // namespace

absl::Status EngineOptions::Validate() const {
  QUIRE_RETURN_IF_ERROR(scheduler.Validate());
  if (max_queued_requests < 1) {
    return InvalidArgument("max_queued_requests must be at least 1, got {}", max_queued_requests);
  }
  if (max_queued_prompt_tokens < 1) {
    return InvalidArgument("max_queued_prompt_tokens must be at least 1, got {}",
                           max_queued_prompt_tokens);
  }
  if (max_prompt_bytes < 1) {
    return InvalidArgument("max_prompt_bytes must be at least 1, got {}", max_prompt_bytes);
  }
  if (max_logprobs < -1) {
    return InvalidArgument("max_logprobs must be at least 0, or -1 for no limit, got {}",
                           max_logprobs);
  }
  if (max_n < 1) return InvalidArgument("max_n must be at least 1, got {}", max_n);
  // Written so that NaN is refused.
  if (!(session_cache_share >= 0 && session_cache_share <= 1)) {
    return InvalidArgument("--session-cache-share must be in [0, 1], got {}", session_cache_share);
  }
  if (session_ttl <= absl::ZeroDuration()) {
    return InvalidArgument("--session-ttl must be above 0, got {}",
                           absl::FormatDuration(session_ttl));
  }
  if (max_kv_event_bytes < 1) {
    return InvalidArgument("max_kv_event_bytes must be at least 1, got {}", max_kv_event_bytes);
  }
  return absl::OkStatus();
}

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, std::unique_ptr<ModelRunner> runner,
       std::shared_ptr<const text::Tokenizer> tokenizer,
       std::shared_ptr<const text::ChatTemplate> chat_template, ModelTraits traits,
       OutputSink* sink, Clock& clock)
      : options_(options),
        traits_(std::move(traits)),
        vocab_size_(runner->vocab_size()),
        kv_geometry_(runner->kv_geometry()),
        clock_(clock),
        tokenizer_(tokenizer),
        intake_(
            options, traits_, vocab_size_, LimitsOf(options, *runner),
            [this](std::int64_t prompt_tokens, std::int32_t branches) {
              return loop_.CheckFits(prompt_tokens, branches);
            },
            std::move(tokenizer), std::move(chat_template)),
        ledger_({.max_queued_requests = options.max_queued_requests,
                 .max_queued_prompt_tokens = options.max_queued_prompt_tokens}),
        kv_events_(options.max_kv_event_bytes),
        board_(EngineStats{}),
        loop_(options, std::move(runner),
              {.ledger = ledger_,
               .mailbox = mailbox_,
               .board = board_,
               .kv_events = kv_events_,
               .intake = intake_,
               .sink = *sink,
               .clock = clock,
               .tokenizer = tokenizer_.get(),
               .nonce = seeds_.Next()}),
        thread_([this] { loop_.Run(); }) {}

  ~Impl() {
    ledger_.Close(Unavailable("the engine is shutting down"));
    text_pool_.Stop();
    mailbox_.Close();
    thread_.join();
  }

  absl::StatusOr<std::shared_ptr<TokenStream>> Submit(GenerationRequest request);

  void Abort(std::shared_ptr<Request> claimed, absl::Status status) {
    if (status.ok()) status = absl::CancelledError("aborted");
    if (claimed != nullptr) {
      mailbox_.Send(AbortMail{.request = std::move(claimed), .status = std::move(status)});
    }
  }

  void Drain(absl::Duration timeout) {
    ledger_.Close(Unavailable("the engine is draining and takes no new requests"));
    mailbox_.Poke();
    if (ledger_.WaitUntilDelivered(timeout)) return;
    mailbox_.Send(AbortAllMail{Aborted("the engine was drained before the request ended")});
    ledger_.WaitUntilDelivered(kAbortGrace);
  }

  const EngineOptions options_;
  const ModelTraits traits_;
  const std::int32_t vocab_size_;
  const KvGeometry kv_geometry_;
  Clock& clock_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const Intake intake_;
  SeedSource seeds_;
  RequestLedger ledger_;
  KvEventHub kv_events_;
  mutable Mailbox mailbox_;
  StatsBoard board_;
  EngineLoop loop_;
  TextPool text_pool_;
  std::thread thread_;

 private:
  absl::StatusOr<std::shared_ptr<Request>> OpenRequest(GenerationRequest request);
  void Encode(const std::shared_ptr<Request>& request);
  void Enqueue(std::shared_ptr<Request> request) {
    mailbox_.Send(NewRequestMail{std::move(request)});
  }
};

absl::StatusOr<std::shared_ptr<TokenStream>> Engine::Impl::Submit(GenerationRequest request) {
  absl::StatusOr<std::shared_ptr<Request>> opened = OpenRequest(std::move(request));
  if (!opened.ok()) {
    mailbox_.Poke();  // The snapshot shall count the refusal.
    return opened.status();
  }
  std::shared_ptr<TokenStream> stream = (*opened)->stream;
  if (Intake::NeedsEncoding(**opened)) {
    const std::int64_t bytes = Intake::PromptBytes(**opened);
    text_pool_.Run(bytes, [this, request = *std::move(opened)] { Encode(request); });
  } else if (absl::Status status = intake_.CompletePrompt(**opened); !status.ok()) {
    if (ledger_.Finish(**opened, OutcomeOf(status))) ledger_.Delivered(1);
    mailbox_.Poke();
    return status;
  } else {
    Enqueue(*std::move(opened));
  }
  return stream;
}

absl::StatusOr<std::shared_ptr<Request>> Engine::Impl::OpenRequest(GenerationRequest request) {
  const std::uint64_t seed = seeds_.Next();
  absl::StatusOr<std::shared_ptr<Request>> opened =
      intake_.Open(std::move(request), fmt::format("quire-{:014x}", seed), seed, clock_.Now());
  if (!opened.ok()) {
    ledger_.CountRefused();
    return opened;
  }
  QUIRE_RETURN_IF_ERROR(
      ledger_.Reserve(*opened, (*opened)->branches, Intake::EstimatePromptTokens(**opened)));
  return opened;
}

// On the text thread.
void Engine::Impl::Encode(const std::shared_ptr<Request>& request) {
  if (!ledger_.IsLive(*request)) return;
  absl::Status status;
  if (clock_.Now() >= request->deadline) {
    status = absl::DeadlineExceededError("the deadline passed before the prompt was encoded");
  } else {
    try {
      status = intake_.CompletePrompt(*request);
    } catch (const std::exception& e) {  // Out of memory, say; nothing may end this thread.
      spdlog::error("a prompt could not be encoded: {}", e.what());
      status = Internal("the prompt could not be encoded");
    }
  }
  if (!status.ok()) {
    mailbox_.Send(AbortMail{.request = request, .status = std::move(status)});
  } else if (ledger_.SetPromptTokens(*request, static_cast<std::int64_t>(request->prompt.size()))) {
    Enqueue(request);
  }
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    const EngineOptions& options, std::unique_ptr<ModelRunner> runner,
    std::shared_ptr<const text::Tokenizer> tokenizer,
    std::shared_ptr<const text::ChatTemplate> chat_template, ModelTraits traits, OutputSink* sink,
    Clock& clock) {
  QUIRE_RETURN_IF_ERROR(options.Validate());
  QUIRE_RETURN_IF_ERROR(runner->kv_geometry().Validate());
  if (runner->num_blocks() < 1) {
    return InvalidArgument("num_blocks must be at least 1, got {}", runner->num_blocks());
  }
  if (options.scheduler.max_model_len > runner->max_model_len()) {
    return InvalidArgument("max_model_len is {}, but the model allows at most {}",
                           options.scheduler.max_model_len, runner->max_model_len());
  }
  std::erase_if(traits.eos_token_ids,
                [&](TokenId id) { return id < 0 || id >= runner->vocab_size(); });
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(options, std::move(runner), std::move(tokenizer),
                                        std::move(chat_template), std::move(traits), sink, clock)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<std::shared_ptr<TokenStream>> Engine::Submit(GenerationRequest request) {
  return impl_->Submit(std::move(request));
}

void Engine::CountRefused() {
  impl_->ledger_.CountRefused();
  impl_->mailbox_.Poke();
}

void Engine::Abort(std::string_view request_id, absl::Status status) {
  impl_->Abort(impl_->ledger_.ClaimAbort(request_id), std::move(status));
}

void Engine::Abort(const std::shared_ptr<TokenStream>& stream, absl::Status status) {
  impl_->Abort(impl_->ledger_.ClaimAbort(*stream), std::move(status));
}

void Engine::Poke() { impl_->mailbox_.Poke(); }

std::uint64_t Engine::progress() const { return impl_->loop_.progress(); }

std::shared_ptr<const EngineStats> Engine::stats() const { return impl_->board_.Read(); }

std::shared_ptr<const EngineStats> Engine::WaitForStats(std::uint64_t sequence_number,
                                                        absl::Duration timeout) const {
  return impl_->board_.WaitNewer(sequence_number, timeout);
}

absl::StatusOr<BlockMap> Engine::GetBlockMap(absl::Duration timeout) const {
  auto reply = std::make_shared<Reply<BlockMap>>();
  return Await(impl_->mailbox_, reply, BlockMapMail{reply}, timeout);
}

absl::StatusOr<std::int64_t> Engine::ResetPrefixCache(absl::Duration timeout) {
  auto reply = std::make_shared<Reply<std::int64_t>>();
  return Await(impl_->mailbox_, reply, ResetPrefixCacheMail{reply}, timeout);
}

absl::StatusOr<bool> Engine::EndSession(std::string_view session_id, std::string_view cache_salt,
                                        absl::Duration timeout) {
  auto reply = std::make_shared<Reply<bool>>();
  EndSessionMail mail{.session = {.id = std::string(session_id),
                                  .salt = block_manager::CacheSalt::ForRequest(cache_salt)},
                      .reply = reply};
  return Await(impl_->mailbox_, reply, std::move(mail), timeout);
}

absl::StatusOr<std::shared_ptr<KvEventSubscription>> Engine::SubscribeKvEvents(
    KvEventHub::OnReady on_ready) {
  QUIRE_ASSIGN_OR_RETURN(auto subscription, impl_->kv_events_.Subscribe(std::move(on_ready)));
  if (!impl_->mailbox_.Send(KvSubscribeMail{subscription})) {
    return Unavailable("the engine was shut down");
  }
  return subscription;
}

// An eighth of the queue has moved up by then, if running requests go on ending at the mean rate
// seen so far.
absl::Duration Engine::retry_after() const {
  const std::shared_ptr<const EngineStats> now = stats();
  if (now->e2e_latency.count == 0) return kDefaultRetryAfter;
  const double mean_service_s = std::max(0.0, now->e2e_latency.sum - now->queue_time.sum) /
                                static_cast<double>(now->e2e_latency.count);
  const double queued = std::max(1.0, static_cast<double>(now->requests_queued) / 8);
  const double running = std::max(1.0, static_cast<double>(now->requests_running));
  return std::clamp(absl::Seconds(mean_service_s * queued / running), kMinRetryAfter,
                    kMaxRetryAfter);
}

void Engine::Drain(absl::Duration timeout) { impl_->Drain(timeout); }

absl::StatusOr<std::vector<TokenId>> Engine::Tokenize(const TextPrompt& prompt) const {
  return impl_->intake_.Encode(prompt);
}

absl::StatusOr<std::vector<TokenId>> Engine::TokenizeChat(const ChatPrompt& prompt) const {
  return impl_->intake_.Encode(prompt);
}

absl::StatusOr<std::string> Engine::Detokenize(const std::vector<TokenId>& ids,
                                               bool skip_special_tokens) const {
  if (impl_->tokenizer_ == nullptr) return FailedPrecondition("this model has no tokenizer");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= impl_->vocab_size_) {
      return InvalidArgument("token_ids[{}] is {}, outside the vocabulary of {}", i, ids[i],
                             impl_->vocab_size_);
    }
  }
  return text::Decode(*impl_->tokenizer_, ids, skip_special_tokens);
}

const EngineOptions& Engine::options() const { return impl_->options_; }
const ModelTraits& Engine::traits() const { return impl_->traits_; }
std::int32_t Engine::vocab_size() const { return impl_->vocab_size_; }
const KvGeometry& Engine::kv_geometry() const { return impl_->kv_geometry_; }

}  // namespace quire::engine
