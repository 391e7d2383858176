#include "server/stats_service.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "server/convert.h"
#include "server/kv_event_call.h"
#include "server/offload_unary.h"

namespace quire::server {
namespace {

constexpr absl::Duration kEngineWait = absl::Seconds(5);
constexpr std::uint32_t kMinIntervalMs = 10;
constexpr std::uint32_t kMaxIntervalMs = 60'000;
constexpr std::uint32_t kDefaultIntervalMs = 1000;
constexpr std::size_t kMaxWatches = 256;

// The engine itself hears of a drain only at its end.
v1::Stats Snapshot(const Gate::Pass& pass, absl::Duration uptime) {
  v1::Stats stats = ToProto(*pass.engine().stats(), uptime);
  stats.set_draining(pass.draining());
  return stats;
}

}  // namespace

// One WatchStats call: a snapshot per tick, skipped while the client has not taken the last one.
// Thread: reactions on gRPC's threads, Tick on the timer's.
class StatsWatch final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                         public std::enable_shared_from_this<StatsWatch> {
 public:
  StatsWatch(Gate::Pass pass, const Clock* clock, absl::Time started)
      : pass_(std::move(pass)), clock_(clock), started_(started) {}

  void Start() { self_ = shared_from_this(); }

  // False when the call is over.
  bool Tick() {
    {
      absl::MutexLock lock(&mutex_);
      if (finished_) return false;
      if (writing_) return true;
      writing_ = true;
    }
    v1::WatchStatsResponse response;
    *response.mutable_stats() = Snapshot(pass_, clock_->Now() - started_);
    const absl::Status fits = PutMessage(response, &message_);
    QUIRE_DCHECK(fits.ok());
    StartWrite(&message_);
    return true;
  }

  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (finished_ || end_.has_value()) return;
      end_ = status;
      if (writing_) return;
      finished_ = true;
    }
    Finish(ToGrpc(status));
  }

  void OnWriteDone(bool ok) override {
    std::optional<absl::Status> end;
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok && !end_.has_value()) end_ = absl::CancelledError();
      if (!end_.has_value() || finished_) return;
      finished_ = true;
      end = end_;
    }
    Finish(ToGrpc(*end));
  }

  void OnCancel() override { End(absl::CancelledError("the client cancelled the call")); }
  void OnDone() override { self_.reset(); }

 private:
  Gate::Pass pass_;
  const Clock* const clock_;
  const absl::Time started_;
  std::shared_ptr<StatsWatch> self_;  // Until OnDone.

  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // Said once the write is through.
  grpc::ByteBuffer message_;                                 // In flight while writing_.
};

namespace {

// A call that is over before it begins.
class RefusedWatch final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedWatch(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

absl::StatusOr<absl::Duration> Interval(const absl::StatusOr<v1::WatchStatsRequest>& request) {
  QUIRE_RETURN_IF_ERROR(request.status());
  const std::uint32_t ms = request->interval_ms();
  if (ms == 0) return absl::Milliseconds(kDefaultIntervalMs);
  if (ms < kMinIntervalMs || ms > kMaxIntervalMs) {
    return InvalidArgument("interval_ms must be 0 or from {} to {}, got {}", kMinIntervalMs,
                           kMaxIntervalMs, ms);
  }
  return absl::Milliseconds(ms);
}

}  // namespace

StatsService::~StatsService() = default;

grpc::ServerUnaryReactor* StatsService::GetStats(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return ServeUnary<v1::GetStatsRequest>(
      context, request, response, [this](const auto&) -> absl::StatusOr<v1::GetStatsResponse> {
        QUIRE_ASSIGN_OR_RETURN(const Gate::Pass pass, services_.gate->Enter(Gate::Kind::kControl));
        v1::GetStatsResponse answer;
        *answer.mutable_stats() = Snapshot(pass, services_.clock->Now() - started_);
        return answer;
      });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StatsService::WatchStats(
    grpc::CallbackServerContext* /*context*/, const grpc::ByteBuffer* request) {
  auto pass = services_.gate->Enter(Gate::Kind::kControl);
  if (!pass.ok()) return new RefusedWatch(pass.status());
  const auto interval = Interval(TakeMessage<v1::WatchStatsRequest>(request));
  if (!interval.ok()) return new RefusedWatch(interval.status());

  auto watch = std::make_shared<StatsWatch>(*std::move(pass), services_.clock, started_);
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(watches_, [](const auto& other) { return other.expired(); });
    if (watches_.size() >= kMaxWatches) {
      return new RefusedWatch(
          ResourceExhausted("{} clients watch the statistics already", watches_.size()));
    }
    watches_.push_back(watch);
  }
  watch->Start();
  watch->Tick();
  services_.timers->AddPeriodic(*interval, [weak = std::weak_ptr<StatsWatch>(watch)] {
    const auto alive = weak.lock();
    return alive != nullptr && alive->Tick();
  });
  return watch.get();
}

grpc::ServerUnaryReactor* StatsService::GetBlockMap(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return OffloadUnary<v1::GetBlockMapRequest>(
      services_, services_.engine_jobs, context, request, response,
      [](engine::Engine& engine, const auto&) -> absl::StatusOr<v1::GetBlockMapResponse> {
        QUIRE_ASSIGN_OR_RETURN(const engine::BlockMap map, engine.GetBlockMap(kEngineWait));
        return ToProto(map);
      });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StatsService::SubscribeKvEvents(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  auto pass = services_.gate->Enter(Gate::Kind::kControl);
  if (!pass.ok()) return new RefusedWatch(pass.status());
  const auto message = TakeMessage<v1::SubscribeKvEventsRequest>(request);
  if (!message.ok()) return new RefusedWatch(message.status());
  auto call = std::make_shared<KvEventCall>(services_, context, *std::move(pass));
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(subscribers_, [](const auto& other) { return other.expired(); });
    subscribers_.push_back(call);
  }
  call->Start();
  return call.get();
}

void StatsService::EndWatches() {
  std::vector<std::weak_ptr<StatsWatch>> watches;
  std::vector<std::weak_ptr<KvEventCall>> subscribers;
  {
    absl::MutexLock lock(&mutex_);
    watches.swap(watches_);
    subscribers.swap(subscribers_);
  }
  const absl::Status status = absl::UnavailableError("the server is shutting down");
  for (const auto& weak : watches) {
    if (const auto watch = weak.lock()) watch->End(status);
  }
  for (const auto& weak : subscribers) {
    if (const auto call = weak.lock()) call->End(status);
  }
}

}  // namespace quire::server
