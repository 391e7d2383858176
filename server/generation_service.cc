#include "server/generation_service.h"

#include <utility>

#include "server/convert.h"
#include "server/generation_call.h"
#include "server/offload_unary.h"

namespace quire::server {
namespace {

constexpr int kMaxDetokenizeIds = 1 << 20;  // More text than one answer holds.

absl::StatusOr<v1::TokenizeResponse> Encode(const engine::Engine& engine,
                                            v1::TokenizeRequest request) {
  absl::StatusOr<std::vector<TokenId>> ids =
      InvalidArgument("prompt is missing: set one of text and chat");
  if (request.has_text()) ids = engine.Tokenize(ToEngine(std::move(*request.mutable_text())));
  if (request.has_chat()) QUIRE_RETURN_IF_ERROR(CheckChat(request.chat()));
  if (request.has_chat()) ids = engine.TokenizeChat(ToEngine(std::move(*request.mutable_chat())));
  QUIRE_RETURN_IF_ERROR(ids.status());
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(ids->begin(), ids->end());
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> Decode(const engine::Engine& engine,
                                              const v1::DetokenizeRequest& request) {
  if (request.token_ids_size() > kMaxDetokenizeIds) {
    return InvalidArgument("token_ids has {} entries, at most {} are allowed",
                           request.token_ids_size(), kMaxDetokenizeIds);
  }
  const bool skip_special = !request.has_skip_special_tokens() || request.skip_special_tokens();
  v1::DetokenizeResponse response;
  QUIRE_ASSIGN_OR_RETURN(
      *response.mutable_text(),
      engine.Detokenize({request.token_ids().begin(), request.token_ids().end()}, skip_special));
  return response;
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return StartStreamingCall(services_, context, request);
}

grpc::ServerUnaryReactor* GenerationService::GenerateUnary(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  return StartUnaryCall(services_, context, request, response);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return OffloadUnary<v1::TokenizeRequest>(services_, services_.text_jobs, context, request,
                                           response, Encode);
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return OffloadUnary<v1::DetokenizeRequest>(services_, services_.text_jobs, context, request,
                                             response, Decode);
}

}  // namespace quire::server
