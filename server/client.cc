#include "server/client.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <unordered_set>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "quire/v1/engine.grpc.pb.h"
#include "quire/v1/generation.grpc.pb.h"
#include "quire/v1/stats.grpc.pb.h"
#include "server/status.h"

namespace quire::server {
namespace {

using std::chrono::system_clock;

system_clock::time_point DeadlineAfter(absl::Duration timeout) {
  if (timeout >= absl::Hours(24 * 365)) return system_clock::time_point::max();
  return absl::ToChronoTime(absl::Now() + timeout);
}

// One connection: a channel of its own and the stubs over it.
struct Connection {
  explicit Connection(std::shared_ptr<grpc::Channel> c)
      : channel(std::move(c)), generation(channel), engine(channel), stats(channel) {}
  std::shared_ptr<grpc::Channel> channel;
  v1::GenerationService::Stub generation;
  v1::EngineService::Stub engine;
  v1::StatsService::Stub stats;
};

std::unique_ptr<Connection> MakeConnection(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  // Else channels to one address share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A proxy from the environment is never meant for an inference server named by address.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_receive_bytes));
  return std::make_unique<Connection>(
      grpc::CreateCustomChannel(options.target, grpc::InsecureChannelCredentials(), arguments));
}

// Whether the host of "HOST:PORT" or "[::1]:PORT" is an address or a name that has one.
bool HasAddress(const std::string& target) {
  std::string host = target.substr(0, target.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo* addresses = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &addresses) != 0) return false;
  freeaddrinfo(addresses);
  return true;
}

// A call as the thread that drains the completion queue sees it: `Advance` is told that the one
// operation in flight has ended.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void Advance(bool ok) = 0;
};

// A server-streaming call of either kind, retried before its first message when it may be.
template <class Response>
class StreamCall final : public Call,
                         public Operation,
                         public std::enable_shared_from_this<StreamCall<Response>> {
 public:
  using Reader = std::unique_ptr<grpc::ClientAsyncReader<Response>>;
  struct Hooks {
    std::function<Reader(grpc::ClientContext*, grpc::CompletionQueue*)> prepare;
    std::function<void(const Response&)> on_response;
    Client::OnDone on_done;
    std::function<void(const std::shared_ptr<Call>&)> forget;  // The very last thing.
  };

  StreamCall(CallOptions options, grpc::CompletionQueue* queue, Hooks hooks)
      : options_(options),
        queue_(queue),
        hooks_(std::move(hooks)),
        retry_until_(absl::Now() + options.retry_for) {}

  void Start() {
    absl::MutexLock lock(&mutex_);
    Try();
  }

  void Cancel() override {
    absl::MutexLock lock(&mutex_);
    if (state_ == State::kOver) return;
    cancelled_ = true;
    if (state_ == State::kWaiting) {
      alarm_.Cancel();
    } else {
      context_->TryCancel();
    }
  }

  void Advance(bool ok) override {
    switch (state_) {
      case State::kStarting:
      case State::kReading:
        return OnRead(ok);
      case State::kFinishing:
        return OnFinished();
      case State::kWaiting:
        return OnWaited();
      case State::kOver:
        return;
    }
  }

 private:
  enum class State { kStarting, kReading, kFinishing, kWaiting, kOver };

  void Try() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++outcome_.num_tries;
    reader_.reset();  // It lies in memory of the last try's call, which goes with its context.
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(DeadlineAfter(options_.timeout));
    if (cancelled_) context_->TryCancel();
    reader_ = hooks_.prepare(context_.get(), queue_);
    state_ = State::kStarting;
    reader_->StartCall(static_cast<Operation*>(this));
  }

  void OnRead(bool ok) {
    const bool has_message = ok && state_ == State::kReading;
    if (has_message) {
      got_message_ = true;
      hooks_.on_response(response_);
    }
    if (ok) {
      state_ = State::kReading;
      reader_->Read(&response_, static_cast<Operation*>(this));
    } else {
      state_ = State::kFinishing;
      reader_->Finish(&status_, static_cast<Operation*>(this));
    }
  }

  void OnFinished() {
    outcome_.status = FromGrpc(status_);
    outcome_.retry_after = RetryAfterOf(status_);
    {
      absl::MutexLock lock(&mutex_);
      if (MayRetry()) {
        state_ = State::kWaiting;
        alarm_.Set(queue_, DeadlineAfter(*outcome_.retry_after), static_cast<Operation*>(this));
        return;
      }
      state_ = State::kOver;
      reader_.reset();
      context_.reset();
    }
    const auto self = this->shared_from_this();
    hooks_.on_done(outcome_);
    hooks_.forget(self);
  }

  void OnWaited() {
    absl::MutexLock lock(&mutex_);
    Try();
  }

  bool MayRetry() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !cancelled_ && !got_message_ && absl::IsResourceExhausted(outcome_.status) &&
           outcome_.retry_after.has_value() && absl::Now() + *outcome_.retry_after < retry_until_;
  }

  const CallOptions options_;
  grpc::CompletionQueue* const queue_;
  const Hooks hooks_;
  const absl::Time retry_until_;

  // Guards what Cancel touches; everything else belongs to the queue's thread.
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
  std::atomic<State> state_ = State::kStarting;

  Reader reader_;
  Response response_;
  grpc::Status status_;
  bool got_message_ = false;
  CallOutcome outcome_;
};

}  // namespace

class Client::Impl {
 public:
  explicit Impl(std::vector<std::unique_ptr<Connection>> connections)
      : connections_(std::move(connections)), thread_([this] { DrainQueue(); }) {}

  ~Impl() {
    {
      absl::MutexLock lock(&mutex_);
      closing_ = true;
      for (const auto& call : calls_) call->Cancel();
      mutex_.Await(absl::Condition(
          +[](Calls* calls) { return calls->empty(); }, &calls_));
    }
    queue_.Shutdown();
    thread_.join();
  }

  Connection& Next() { return *connections_[next_++ % connections_.size()]; }

  template <class Response>
  std::shared_ptr<Call> StartStream(const CallOptions& options,
                                    typename StreamCall<Response>::Hooks hooks) {
    hooks.forget = [this](const std::shared_ptr<Call>& call) { Forget(call); };
    auto call = std::make_shared<StreamCall<Response>>(options, &queue_, std::move(hooks));
    absl::MutexLock lock(&mutex_);
    calls_.insert(call);
    call->Start();
    if (closing_) call->Cancel();
    return call;
  }

  template <class Response, class Invoke>
  absl::StatusOr<Response> Unary(absl::Duration timeout, const Invoke& invoke) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(timeout));
    Response response;
    const grpc::Status status = invoke(Next(), &context, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }

 private:
  using Calls = std::unordered_set<std::shared_ptr<Call>>;

  void DrainQueue() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) static_cast<Operation*>(tag)->Advance(ok);
  }

  void Forget(const std::shared_ptr<Call>& call) {
    absl::MutexLock lock(&mutex_);
    calls_.erase(call);
  }

  std::vector<std::unique_ptr<Connection>> connections_;
  std::atomic<std::size_t> next_ = 0;
  grpc::CompletionQueue queue_;
  absl::Mutex mutex_;
  Calls calls_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Drains queue_.
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  if (options.num_connections < 1) {
    return InvalidArgument("num_connections must be at least 1, got {}", options.num_connections);
  }
  std::vector<std::unique_ptr<Connection>> connections;
  connections.reserve(static_cast<std::size_t>(options.num_connections));
  for (std::int32_t i = 0; i < options.num_connections; ++i) {
    connections.push_back(MakeConnection(options));
    connections.back()->channel->GetState(/*try_to_connect=*/true);
  }
  const auto deadline = DeadlineAfter(options.connect_timeout);
  for (const auto& connection : connections) {
    if (!connection->channel->WaitForConnected(deadline)) {
      return Unavailable("no Quire server answers at {} ({})", options.target,
                         HasAddress(options.target)
                             ? "waited " + absl::FormatDuration(options.connect_timeout)
                             : "the name of the host does not resolve");
    }
  }
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(std::move(connections))));
}

std::shared_ptr<Call> Client::Generate(const v1::GenerateRequest& request,
                                       const CallOptions& options, OnResponse on_response,
                                       OnDone on_done) {
  return impl_->StartStream<v1::GenerateResponse>(
      options, {.prepare =
                    [&connection = impl_->Next(), request](grpc::ClientContext* context,
                                                           grpc::CompletionQueue* queue) {
                      return connection.generation.PrepareAsyncGenerate(context, request, queue);
                    },
                .on_response = std::move(on_response),
                .on_done = std::move(on_done),
                .forget = {}});
}

std::shared_ptr<Call> Client::WatchStats(absl::Duration interval, OnStats on_stats,
                                         OnDone on_done) {
  v1::WatchStatsRequest request;
  request.set_interval_ms(static_cast<std::uint32_t>(absl::ToInt64Milliseconds(interval)));
  return impl_->StartStream<v1::WatchStatsResponse>(
      {},
      {.prepare =
           [&connection = impl_->Next(), request](grpc::ClientContext* context,
                                                  grpc::CompletionQueue* queue) {
             return connection.stats.PrepareAsyncWatchStats(context, request, queue);
           },
       .on_response = [on_stats = std::move(on_stats)](
                          const v1::WatchStatsResponse& response) { on_stats(response.stats()); },
       .on_done = std::move(on_done),
       .forget = {}});
}

std::shared_ptr<Call> Client::SubscribeKvEvents(OnKvEvents on_events, OnDone on_done) {
  return impl_->StartStream<v1::KvEventBatch>(
      {}, {.prepare =
               [&connection = impl_->Next()](grpc::ClientContext* context,
                                             grpc::CompletionQueue* queue) {
                 return connection.stats.PrepareAsyncSubscribeKvEvents(context, {}, queue);
               },
           .on_response = std::move(on_events),
           .on_done = std::move(on_done),
           .forget = {}});
}

CallOutcome Client::GenerateAndWait(const v1::GenerateRequest& request, const CallOptions& options,
                                    OnResponse on_response) {
  absl::Notification done;
  CallOutcome outcome;
  Generate(request, options, std::move(on_response), [&](const CallOutcome& result) {
    outcome = result;
    done.Notify();
  });
  done.WaitForNotification();
  return outcome;
}

absl::StatusOr<v1::GenerateUnaryResponse> Client::GenerateUnary(const v1::GenerateRequest& request,
                                                                const CallOptions& options) {
  v1::GenerateUnaryRequest wrapped;
  *wrapped.mutable_request() = request;
  return impl_->Unary<v1::GenerateUnaryResponse>(
      options.timeout, [&](Connection& connection, auto* context, auto* response) {
        return connection.generation.GenerateUnary(context, wrapped, response);
      });
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request) {
  return impl_->Unary<v1::TokenizeResponse>(
      kDefaultTimeout, [&](Connection& connection, auto* context, auto* response) {
        return connection.generation.Tokenize(context, request, response);
      });
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(const v1::DetokenizeRequest& request) {
  return impl_->Unary<v1::DetokenizeResponse>(
      kDefaultTimeout, [&](Connection& connection, auto* context, auto* response) {
        return connection.generation.Detokenize(context, request, response);
      });
}

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo() {
  return impl_->Unary<v1::GetServerInfoResponse>(
      kDefaultTimeout, [](Connection& connection, auto* context, auto* response) {
        return connection.engine.GetServerInfo(context, {}, response);
      });
}

absl::StatusOr<v1::GetModelInfoResponse> Client::GetModelInfo() {
  return impl_->Unary<v1::GetModelInfoResponse>(
      kDefaultTimeout, [](Connection& connection, auto* context, auto* response) {
        return connection.engine.GetModelInfo(context, {}, response);
      });
}

absl::Status Client::Abort(const std::vector<std::string>& request_ids) {
  v1::AbortRequest request;
  request.mutable_request_ids()->Add(request_ids.begin(), request_ids.end());
  return impl_
      ->Unary<v1::AbortResponse>(kDefaultTimeout,
                                 [&](Connection& connection, auto* context, auto* response) {
                                   return connection.engine.Abort(context, request, response);
                                 })
      .status();
}

absl::StatusOr<std::int64_t> Client::ResetPrefixCache() {
  QUIRE_ASSIGN_OR_RETURN(
      const auto response,
      impl_->Unary<v1::ResetPrefixCacheResponse>(
          kDefaultTimeout, [](Connection& connection, auto* context, auto* answer) {
            return connection.engine.ResetPrefixCache(context, {}, answer);
          }));
  return response.freed_blocks();
}

absl::StatusOr<bool> Client::EndSession(const std::string& session_id,
                                        const std::string& cache_salt, absl::Duration timeout) {
  v1::EndSessionRequest request;
  request.set_session_id(session_id);
  request.set_cache_salt(cache_salt);
  QUIRE_ASSIGN_OR_RETURN(const auto response,
                         impl_->Unary<v1::EndSessionResponse>(
                             timeout, [&](Connection& connection, auto* context, auto* answer) {
                               return connection.engine.EndSession(context, request, answer);
                             }));
  return response.existed();
}

absl::StatusOr<bool> Client::Drain(absl::Duration timeout) {
  v1::DrainRequest request;
  request.set_timeout_seconds(absl::ToDoubleSeconds(timeout));
  QUIRE_ASSIGN_OR_RETURN(
      const auto response,
      impl_->Unary<v1::DrainResponse>(timeout + kDefaultTimeout,
                                      [&](Connection& connection, auto* context, auto* answer) {
                                        return connection.engine.Drain(context, request, answer);
                                      }));
  return response.idle();
}

absl::StatusOr<v1::Stats> Client::GetStats() {
  QUIRE_ASSIGN_OR_RETURN(
      auto response, impl_->Unary<v1::GetStatsResponse>(
                         kDefaultTimeout, [](Connection& connection, auto* context, auto* answer) {
                           return connection.stats.GetStats(context, {}, answer);
                         }));
  return std::move(*response.mutable_stats());
}

absl::StatusOr<v1::GetBlockMapResponse> Client::GetBlockMap() {
  return impl_->Unary<v1::GetBlockMapResponse>(
      kDefaultTimeout, [](Connection& connection, auto* context, auto* response) {
        return connection.stats.GetBlockMap(context, {}, response);
      });
}

}  // namespace quire::server
