#include "server/engine_service.h"

#include <algorithm>
#include <cmath>

#include "server/offload_unary.h"

namespace quire::server {
namespace {

constexpr absl::Duration kEngineWait = absl::Seconds(5);
constexpr double kMaxDrainSeconds = 24 * 3600;

}  // namespace

grpc::ServerUnaryReactor* EngineService::GetServerInfo(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return ServeUnary<v1::GetServerInfoRequest>(
      context, request, response, [this](const auto&) -> absl::StatusOr<v1::GetServerInfoResponse> {
        QUIRE_ASSIGN_OR_RETURN(const Gate::Pass pass, services_.gate->Enter(Gate::Kind::kControl));
        v1::GetServerInfoResponse info = pass.model().server_info;
        info.set_uptime_seconds(absl::ToDoubleSeconds(services_.clock->Now() - started_));
        return info;
      });
}

grpc::ServerUnaryReactor* EngineService::GetModelInfo(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return ServeUnary<v1::GetModelInfoRequest>(
      context, request, response, [this](const auto&) -> absl::StatusOr<v1::GetModelInfoResponse> {
        QUIRE_ASSIGN_OR_RETURN(const Gate::Pass pass, services_.gate->Enter(Gate::Kind::kControl));
        return pass.model().model_info;
      });
}

grpc::ServerUnaryReactor* EngineService::Abort(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return ServeUnary<v1::AbortRequest>(
      context, request, response,
      [this](const v1::AbortRequest& ids) -> absl::StatusOr<v1::AbortResponse> {
        QUIRE_ASSIGN_OR_RETURN(const Gate::Pass pass, services_.gate->Enter(Gate::Kind::kControl));
        for (const auto& id : ids.request_ids()) {
          pass.engine().Abort(id, absl::AbortedError("aborted by EngineService.Abort"));
        }
        return v1::AbortResponse();
      });
}

grpc::ServerUnaryReactor* EngineService::ResetPrefixCache(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* response) {
  return OffloadUnary<v1::ResetPrefixCacheRequest>(
      services_, services_.engine_jobs, context, request, response,
      [](engine::Engine& engine, const auto&) -> absl::StatusOr<v1::ResetPrefixCacheResponse> {
        QUIRE_ASSIGN_OR_RETURN(const std::int64_t freed, engine.ResetPrefixCache(kEngineWait));
        v1::ResetPrefixCacheResponse answer;
        answer.set_freed_blocks(freed);
        return answer;
      });
}

grpc::ServerUnaryReactor* EngineService::EndSession(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return OffloadUnary<v1::EndSessionRequest>(
      services_, services_.engine_jobs, context, request, response,
      [](engine::Engine& engine,
         const v1::EndSessionRequest& session) -> absl::StatusOr<v1::EndSessionResponse> {
        if (session.session_id().empty()) return InvalidArgument("session_id is missing");
        QUIRE_ASSIGN_OR_RETURN(
            const bool existed,
            engine.EndSession(session.session_id(), session.cache_salt(), kEngineWait));
        v1::EndSessionResponse answer;
        answer.set_existed(existed);
        return answer;
      });
}

grpc::ServerUnaryReactor* EngineService::Drain(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return OffloadUnary<v1::DrainRequest>(
      services_, services_.drain_jobs, context, request, response,
      [this](engine::Engine& engine,
             const v1::DrainRequest& drain) -> absl::StatusOr<v1::DrainResponse> {
        const double seconds = drain.timeout_seconds();
        if (!(seconds >= 0) || seconds > kMaxDrainSeconds) {
          return InvalidArgument("timeout_seconds must be in [0, {}], got {}", kMaxDrainSeconds,
                                 seconds);
        }
        start_draining_();
        v1::DrainResponse answer;
        answer.set_idle(services_.gate->WaitForGenerations(absl::Seconds(seconds)));
        engine.Drain(absl::ZeroDuration());
        return answer;
      });
}

}  // namespace quire::server
