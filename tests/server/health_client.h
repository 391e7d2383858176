// grpc.health.v1 over bare bytes: the message is one varint field, so no generated code is needed.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace quire::server {

enum class Health { kServing, kNotServing, kUnknownService, kNoAnswer };

Health CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service);
// Asks until it hears `wanted`, for at most a minute.
bool WaitForHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
                   Health wanted);

}  // namespace quire::server
