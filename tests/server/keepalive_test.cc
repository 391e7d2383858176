// Clients and gateways ping; a gRPC server's defaults answer that with GOAWAY "too_many_pings"
// (reference: smg-project and vLLM shipped that fault, the latter through a misspelt channel
// argument).
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/heartbeat.h"
#include "tests/server/harness.h"
#include "tests/server/http_client.h"

namespace quire::server {
namespace {

// Bare HTTP/2, since gRPC's own client sends at most one ping a second.
std::string Frame(char type, std::string_view payload) {
  std::string frame = {0, 0, static_cast<char>(payload.size()), type, 0, 0, 0, 0, 0};
  return frame.append(payload);
}

// Pings `rounds` times, ten at once, on a connection without calls; returns how many pings were
// acknowledged before the server ended the connection, if it did.
int Ping(std::int32_t port, int rounds) {
  constexpr char kSettings = 4;
  constexpr char kPing = 6;
  constexpr char kGoaway = 7;
  HttpConnection connection(port);
  connection.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, ""));
  int acknowledged = 0;
  for (int round = 1; round <= rounds; ++round) {
    for (int i = 0; i < 10; ++i) connection.Send(Frame(kPing, "quire is"));
    while (acknowledged < 10 * round) {
      const auto header = connection.ReadBytes(9);
      if (!header) return acknowledged;
      const auto at = [&](std::size_t i) { return static_cast<unsigned char>((*header)[i]); };
      const std::size_t length = at(0) << 16 | at(1) << 8 | at(2);
      if (!connection.ReadBytes(length) || at(3) == kGoaway) return acknowledged;
      if (at(3) == kPing && at(4) == 1) ++acknowledged;
    }
  }
  return acknowledged;
}

TEST(Keepalive, FrequentPingsDoNotEndTheConnection) {
  Harness harness;
  EXPECT_EQ(Ping(harness.server().grpc_port(), 10), 100);
}

// That the test above can fail: the same pings against a server with gRPC's defaults.
TEST(Keepalive, DefaultsWouldEndIt) {
  v1::StatsService::CallbackService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  EXPECT_LT(Ping(port, 10), 100);
  server->Shutdown(std::chrono::system_clock::now());
}

// Answers no call until the test lets it.
class HeldService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    class Call final : public grpc::ServerGenericBidiReactor {
      void OnDone() override { delete this; }
    };
    auto* call = new Call;
    absl::MutexLock lock(&mutex_);
    calls_.push_back(call);
    return call;
  }
  std::size_t WaitForCalls() {
    absl::MutexLock lock(&mutex_);
    const auto some = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !calls_.empty(); };
    mutex_.Await(absl::Condition(&some));
    return calls_.size();
  }
  std::size_t AnswerAll() {
    absl::MutexLock lock(&mutex_);
    for (auto* call : calls_) call->Finish(grpc::Status::OK);
    return std::exchange(calls_, {}).size();
  }

 private:
  absl::Mutex mutex_;
  std::vector<grpc::ServerGenericBidiReactor*> calls_ ABSL_GUARDED_BY(mutex_);
};

TEST(Heartbeat, IsAnsweredAndNeverPilesUp) {
  grpc::EnableDefaultHealthCheckService(false);
  HeldService service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  Heartbeat heartbeat(server.get());
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  for (std::int64_t round = 1; round <= 3; ++round) {
    heartbeat.Beat();
    EXPECT_EQ(service.WaitForCalls(), 1U);
    for (int i = 0; i < 10; ++i) heartbeat.Beat();
    EXPECT_EQ(heartbeat.num_beats(), round - 1);
    EXPECT_EQ(service.AnswerAll(), 1U);
    while (heartbeat.num_beats() < round && absl::Now() < deadline) std::this_thread::yield();
    EXPECT_EQ(heartbeat.num_beats(), round);
  }
  server->Shutdown(std::chrono::system_clock::now());
}

}  // namespace
}  // namespace quire::server
