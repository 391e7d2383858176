#include "tests/server/health_client.h"

#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace quire::server {

Health CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  // HealthCheckRequest{service = 1}; HealthCheckResponse{status = 1}: 1 SERVING, 2 NOT_SERVING.
  std::string bytes;
  if (!service.empty()) bytes = std::string("\x0a") + static_cast<char>(service.size()) + service;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  absl::Notification done;
  grpc::Status status;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &response,
                 [&](grpc::Status s) {
                   status = std::move(s);
                   done.Notify();
                 });
  done.WaitForNotification();
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return Health::kUnknownService;
  if (!status.ok()) return Health::kNoAnswer;
  grpc::Slice answer;
  if (!response.DumpToSingleSlice(&answer).ok() || answer.size() != 2) return Health::kNoAnswer;
  return answer.begin()[1] == 1 ? Health::kServing : Health::kNotServing;
}

bool WaitForHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
                   Health wanted) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (CheckHealth(channel, service) != wanted) {
    if (absl::Now() > deadline) return false;
  }
  return true;
}

}  // namespace quire::server
