// One Generate or GenerateUnary call: from its bytes to the engine, and the engine's output back.
//
// Ownership: a call keeps itself alive until gRPC says OnDone.
// Thread: reactions run on gRPC's threads, StreamReader on the emitter's; a mutex orders them, and
// no gRPC operation is started with it held.
// Invariants: (1) at most one write is in flight. (2) Headers leave with Accepted, so a refusal is
// a lone status that a gateway may retry elsewhere. (3) The call ends exactly once.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/service_context.h"

namespace quire::server {

// Both return at once; what happens next comes from the engine or the client.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartStreamingCall(const ServiceContext& services,
                                                               grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request);
grpc::ServerUnaryReactor* StartUnaryCall(const ServiceContext& services,
                                         grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response);

}  // namespace quire::server
