// quire.v1.GenerationService.
#pragma once

#include "quire/v1/generation.grpc.pb.h"
#include "server/service_context.h"

namespace quire::server {

template <class Base>
using RawGeneration = v1::GenerationService::WithRawCallbackMethod_Generate<
    v1::GenerationService::WithRawCallbackMethod_GenerateUnary<
        v1::GenerationService::WithRawCallbackMethod_Tokenize<
            v1::GenerationService::WithRawCallbackMethod_Detokenize<Base>>>>;

class GenerationService final : public RawGeneration<v1::GenerationService::Service> {
 public:
  explicit GenerationService(const ServiceContext& services) : services_(services) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* GenerateUnary(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  const ServiceContext& services_;
};

}  // namespace quire::server
