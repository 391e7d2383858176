// A unary call whose work is done by an Offload: enters the gate, parses, queues, answers.
#pragma once

#include <new>
#include <utility>

#include "base/status.h"
#include "server/service_context.h"
#include "server/wire.h"

namespace quire::server {

// `handle(engine, request)` returns a StatusOr<Response>; it runs on a thread of `jobs`.
template <class Request, class Handle>
grpc::ServerUnaryReactor* OffloadUnary(const ServiceContext& services, Offload* jobs,
                                       grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                       Handle handle) {
  auto* reactor = context->DefaultReactor();
  auto pass = services.gate->Enter(Gate::Kind::kControl);
  auto message = TakeMessage<Request>(request);
  absl::Status status = pass.ok() ? message.status() : pass.status();
  if (status.ok()) {
    status = jobs->Run([reactor, response, pass = *std::move(pass), message = *std::move(message),
                        handle = std::move(handle)]() mutable {
      decltype(handle(pass.engine(), std::move(message))) answer = Internal("the call failed");
      try {
        answer = handle(pass.engine(), std::move(message));
      } catch (const std::bad_alloc&) {
        answer = ResourceExhausted("too little memory for this call");
      }
      pass.Release();
      Finish(reactor, answer, response);
    });
  }
  if (!status.ok()) reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace quire::server
