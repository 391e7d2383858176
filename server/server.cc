#include "server/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "base/status.h"
#include "server/engine_service.h"
#include "server/generation_service.h"
#include "server/health_monitor.h"
#include "server/heartbeat.h"
#include "server/http_server.h"
#include "server/listen_address.h"
#include "server/metrics_text.h"
#include "server/service_context.h"
#include "server/stats_service.h"
#include "server/wire.h"

namespace quire::server {
namespace {

constexpr absl::Duration kHealthPeriod = absl::Milliseconds(250);
constexpr absl::Duration kReaderTickPeriod = absl::Seconds(1);
// After the grace: for last messages to leave, then for gRPC to cancel what does not move.
constexpr absl::Duration kLastWords = absl::Milliseconds(500);
// Reflection is a synchronous service: a thread per stream, of which there may be this many.
constexpr int kMaxReflectionThreads = 8;

const char* const kHealthNames[] = {"", "quire.v1.GenerationService", "quire.v1.EngineService",
                                    "quire.v1.StatsService"};

absl::Status CheckRange(std::string_view flag, std::int64_t value, std::int64_t low,
                        std::int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("--{} must be in [{}, {}], got {}", flag, low, high, value);
}

void AddArguments(const ServerOptions& options, grpc::ServerBuilder* builder) {
  // Else a second server on the same port would silently share it.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.max_receive_bytes));
  builder->SetMaxSendMessageSize(static_cast<int>(kMaxSendBytes) + 1024);
  // Gateways ping every 30 s, also when idle; by default that ends in GOAWAY "too_many_pings".
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Our own pings find clients that vanished while they hold blocks.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  builder->SetResourceQuota(grpc::ResourceQuota("quire").SetMaxThreads(kMaxReflectionThreads));
}

}  // namespace

absl::Status ServerOptions::Validate() const {
  QUIRE_RETURN_IF_ERROR(CheckListenHost(host, insecure_listen));
  QUIRE_RETURN_IF_ERROR(CheckRange("port", port, 0, 65535));
  if (http_port) QUIRE_RETURN_IF_ERROR(CheckRange("http-port", *http_port, 0, 65535));
  QUIRE_RETURN_IF_ERROR(
      CheckRange("max-receive-bytes", max_receive_bytes, 1 << 16, (1LL << 31) - 1));
  QUIRE_RETURN_IF_ERROR(CheckRange("max-concurrent-streams", max_concurrent_streams, 1, 1'000'000));
  QUIRE_RETURN_IF_ERROR(CheckRange("max-unread-tokens", max_unread_tokens, 1, 1 << 30));
  return CheckRange("stuck-after-seconds", absl::ToInt64Seconds(stuck_after), 0, 24 * 3600);
}

class Server::Impl {
 public:
  explicit Impl(ServerOptions options)
      : options_(std::move(options)),
        services_{.gate = &gate_,
                  .emitter = &emitter_,
                  .timers = &timers_,
                  .text_jobs = &text_jobs_,
                  .engine_jobs = &engine_jobs_,
                  .drain_jobs = &drain_jobs_,
                  .clock = &Clock::Real(),
                  .max_unread_tokens = options_.max_unread_tokens,
                  .cut_grace = options_.cut_grace},
        started_(services_.clock->Now()),
        health_(services_, options_.stuck_after, [this](HealthState state) { Announce(state); }),
        generation_service_(services_),
        engine_service_(services_, [this] { StartDraining(); }),
        stats_service_(services_) {}

  ~Impl() { Shutdown(absl::ZeroDuration()); }

  absl::Status Start() {
    QUIRE_RETURN_IF_ERROR(StartGrpc());
    if (options_.http_port) QUIRE_RETURN_IF_ERROR(StartHttp());
    timers_.AddPeriodic(kHeartbeatPeriod, [this] {
      heartbeat_->Beat();
      return true;
    });
    timers_.AddPeriodic(kHealthPeriod, [this] {
      health_.Check();
      return true;
    });
    timers_.AddPeriodic(kReaderTickPeriod, [this] {
      emitter_.Tick();
      return true;
    });
    return absl::OkStatus();
  }

  void Serve(ServedModel model) {
    gate_.Open(std::move(model));
    health_.Check();
  }

  void Shutdown(absl::Duration grace) {
    if (server_ == nullptr) return;
    StartDraining();
    gate_.WaitForGenerations(grace);
    gate_.HurryUp();  // Calls of Drain wait too.
    if (const auto pass = gate_.Enter(Gate::Kind::kControl); pass.ok()) {
      pass->engine().Drain(absl::ZeroDuration());
    }
    if (!gate_.WaitForLastGenerations(kLastWords)) {
      emitter_.FailAll(absl::UnavailableError("the server is shutting down"));
    }
    stats_service_.EndWatches();
    gate_.Close();
    // A ping that meets the in-process transport while it closes crashes inside gRPC.
    timers_.Stop();
    server_->Shutdown(absl::ToChronoTime(absl::Now() + kLastWords));
    gate_.WaitUntilEmpty();
    http_.reset();
    server_.reset();
  }

  void StopNow() { gate_.HurryUp(); }

  engine::OutputSink* sink() { return &emitter_; }
  std::int32_t grpc_port() const { return grpc_port_; }
  std::int32_t http_port() const { return http_ == nullptr ? 0 : http_->port(); }

 private:
  absl::Status StartGrpc() {
    QUIRE_RETURN_IF_ERROR(CheckPortFree(options_.host, options_.port));
    // It reports every message that does not parse on stderr; the caller gets a status for it.
    google::protobuf::SetLogHandler(nullptr);
    grpc::EnableDefaultHealthCheckService(true);
    if (options_.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    AddArguments(options_, &builder);
    int port = 0;
    builder.AddListeningPort(GrpcAddress(options_.host, options_.port),
                             grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&generation_service_);
    builder.RegisterService(&engine_service_);
    builder.RegisterService(&stats_service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return Unavailable("cannot listen on {} port {}", options_.host, options_.port);
    }
    grpc_port_ = port;
    Announce(HealthState::kLoading);
    heartbeat_.emplace(server_.get());
    return absl::OkStatus();
  }

  absl::Status StartHttp() {
    HttpOptions http;
    http.address = ListenAddress(options_.host);
    http.port = *options_.http_port;
    QUIRE_ASSIGN_OR_RETURN(http_, HttpServer::Start(http, [this](const HttpRequest& request) {
                             return Get(request);
                           }));
    return absl::OkStatus();
  }

  void StartDraining() {
    gate_.StartDraining();
    health_.Check();
  }

  void Announce(HealthState state) {
    auto* service = server_->GetHealthCheckService();
    for (const char* name : kHealthNames) {
      service->SetServingStatus(name, state == HealthState::kServing);
    }
  }

  HttpResponse Get(const HttpRequest& request) {
    if (request.path != "/metrics" && request.path != "/health") {
      return {.status = 404, .body = "not found; there are /metrics and /health\n"};
    }
    if (request.method != "GET") return {.status = 405, .body = "only GET and HEAD\n"};
    return request.path == "/health" ? Health() : Metrics();
  }

  HttpResponse Health() const {
    const HealthState state = health_.state();
    return {.status = state == HealthState::kServing ? 200 : 503,
            .content_type = "application/json",
            .body = fmt::format("{{\"status\":\"{}\"}}\n", HealthStateName(state))};
  }

  HttpResponse Metrics() {
    const auto pass = gate_.Enter(Gate::Kind::kControl);
    if (!pass.ok()) return {.status = 503, .body = std::string(pass.status().message()) + "\n"};
    const ServedModel& model = pass->model();
    const MetricsInfo info = {.model_name = model.model_info.served_model_name(),
                              .version = model.server_info.version(),
                              .cache_dtype = model.model_info.kv_cache_dtype(),
                              .prefix_caching = model.engine->options().enable_prefix_caching};
    return {.content_type = kMetricsContentType,
            .body = MetricsText(*model.engine->stats(), services_.clock->Now() - started_,
                                health_.state() == HealthState::kServing, info)};
  }

  const ServerOptions options_;
  Gate gate_;
  Emitter emitter_;
  Offload text_jobs_{/*max_threads=*/1, /*max_queued=*/256};
  Offload engine_jobs_{/*max_threads=*/4, /*max_queued=*/64};
  Offload drain_jobs_{/*max_threads=*/4, /*max_queued=*/4};
  const ServiceContext services_;
  const absl::Time started_;
  HealthMonitor health_;
  GenerationService generation_service_;
  EngineService engine_service_;
  StatsService stats_service_;
  std::unique_ptr<grpc::Server> server_;  // Null before Start and after Shutdown.
  std::optional<Heartbeat> heartbeat_;
  std::int32_t grpc_port_ = 0;
  std::unique_ptr<HttpServer> http_;
  TimerThread timers_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  QUIRE_RETURN_IF_ERROR(options.Validate());
  auto impl = std::make_unique<Impl>(options);
  QUIRE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::int32_t Server::grpc_port() const { return impl_->grpc_port(); }
std::int32_t Server::http_port() const { return impl_->http_port(); }
engine::OutputSink* Server::sink() { return impl_->sink(); }
void Server::Serve(ServedModel model) { impl_->Serve(std::move(model)); }
void Server::Shutdown(absl::Duration grace) { impl_->Shutdown(grace); }
void Server::StopNow() { impl_->StopNow(); }

}  // namespace quire::server
