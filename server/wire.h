// Reading and writing messages of raw gRPC methods. The services are raw (ByteBuffer in and out) so
// that bytes that are no valid message get INVALID_ARGUMENT, where gRPC itself says UNIMPLEMENTED,
// and so that a request's bytes are freed when they are parsed instead of when the call ends.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "server/status.h"

namespace quire::server {

// What one message of ours may weigh: below the 4 MiB that clients accept unless told otherwise.
inline constexpr std::size_t kMaxSendBytes = (4 << 20) - 1024;

// Parses the bytes and frees them.
template <class Message>
absl::StatusOr<Message> TakeMessage(const grpc::ByteBuffer* bytes) {
  // gRPC hands out a const view of a buffer that is this call's alone.
  auto* buffer = const_cast<grpc::ByteBuffer*>(bytes);
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(buffer, &message).ok()) {
    return InvalidArgument(
        "the bytes are not a valid {}: broken encoding, or a string that is not UTF-8",
        Message::descriptor()->full_name());
  }
  return message;
}

// RESOURCE_EXHAUSTED for a message that is too large to send.
template <class Message>
absl::Status PutMessage(const Message& message, grpc::ByteBuffer* bytes) {
  if (message.ByteSizeLong() > kMaxSendBytes) {
    return ResourceExhausted("the answer has {} bytes, more than the {} of one message",
                             message.ByteSizeLong(), kMaxSendBytes);
  }
  bytes->Clear();  // The writer wants an empty one.
  bool own_buffer = false;
  grpc::SerializationTraits<Message>::Serialize(message, bytes, &own_buffer);
  return absl::OkStatus();
}

// Ends a unary call with an answer or an error.
template <class Response>
void Finish(grpc::ServerUnaryReactor* reactor, const absl::StatusOr<Response>& response,
            grpc::ByteBuffer* bytes) {
  const absl::Status status =
      response.ok() ? PutMessage(*response, bytes) : absl::Status(response.status());
  reactor->Finish(ToGrpc(status));
}

// A whole unary call that needs no waiting: `handle` maps a Request to a StatusOr<Response>.
template <class Request, class Handle>
grpc::ServerUnaryReactor* ServeUnary(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                     const Handle& handle) {
  auto* reactor = context->DefaultReactor();
  auto message = TakeMessage<Request>(request);
  if (message.ok()) {
    Finish(reactor, handle(*std::move(message)), response);
  } else {
    reactor->Finish(ToGrpc(message.status()));
  }
  return reactor;
}

}  // namespace quire::server
