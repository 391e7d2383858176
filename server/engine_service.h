// quire.v1.EngineService.
#pragma once

#include <functional>

#include "quire/v1/engine.grpc.pb.h"
#include "server/service_context.h"

namespace quire::server {

template <class Base>
using RawEngine = v1::EngineService::WithRawCallbackMethod_GetServerInfo<
    v1::EngineService::WithRawCallbackMethod_GetModelInfo<
        v1::EngineService::WithRawCallbackMethod_Abort<
            v1::EngineService::WithRawCallbackMethod_ResetPrefixCache<
                v1::EngineService::WithRawCallbackMethod_EndSession<
                    v1::EngineService::WithRawCallbackMethod_Drain<Base>>>>>>;

class EngineService final : public RawEngine<v1::EngineService::Service> {
 public:
  // `start_draining` makes the whole server refuse new work; called on a gRPC thread.
  EngineService(const ServiceContext& services, std::function<void()> start_draining)
      : services_(services),
        started_(services.clock->Now()),
        start_draining_(std::move(start_draining)) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ResetPrefixCache(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* EndSession(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;

 private:
  const ServiceContext& services_;
  const absl::Time started_;
  const std::function<void()> start_draining_;
};

}  // namespace quire::server
