// A whole server in this process: an engine over the fake model runner, its services on free
// loopback ports, and clients that collect what they hear.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/engine.h"
#include "quire/v1/engine.grpc.pb.h"
#include "quire/v1/generation.grpc.pb.h"
#include "quire/v1/stats.grpc.pb.h"
#include "server/client.h"
#include "server/server.h"
#include "tests/fakes/fake_model_runner.h"

namespace quire::server {

inline constexpr char kModelName[] = "fake-model";

struct HarnessOptions {
  fakes::FakeModelOptions model;
  engine::EngineOptions engine;
  ServerOptions server;
  bool serve = true;  // False: the model is "still loading" until Serve().
};

// Room for answers of kEndless tokens, which no machine finishes before a test has ended them.
inline constexpr std::int32_t kEndless = 16'000;
HarnessOptions LongAnswers();

class Harness {
 public:
  explicit Harness(HarnessOptions options = {});
  ~Harness();  // Shutdown without grace, then engine, then server.

  Server& server() { return *server_; }
  engine::Engine& engine() { return *engine_; }
  fakes::FakeModelControl& model() { return *control_; }
  Client& client() { return *client_; }
  const HarnessOptions& options() const { return options_; }

  void Serve();
  // Shuts down as `quire serve` does; the engine is gone afterwards.
  void Shutdown(absl::Duration grace);

  std::string address() const;
  std::unique_ptr<Client> Connect(std::int32_t num_connections = 1) const;
  // A connection of its own, for tests that need the bare stubs.
  std::shared_ptr<grpc::Channel> Channel(grpc::ChannelArguments arguments = {}) const;
  std::int32_t http_port() const { return server_->http_port(); }

  // Waits until no request is queued or running, and returns the snapshot that says so.
  v1::Stats WaitUntilIdle();
  // Waits for a snapshot that `wanted` likes; fails the test after a minute.
  v1::Stats WaitForStats(const std::function<bool(const v1::Stats&)>& wanted);

 private:
  HarnessOptions options_;
  std::shared_ptr<fakes::FakeModelControl> control_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Client> client_;
};

// Holds the engine thread at the start of its steps.
class StepGate {
 public:
  explicit StepGate(fakes::FakeModelControl* model);
  ~StepGate();  // Opens.

  void Close();
  void Open();
  // Lets this many steps through a closed gate.
  void Allow(int steps);
  // Waits until the engine thread stands at the closed gate.
  void WaitUntilHeld();

 private:
  fakes::FakeModelControl* const model_;
  struct State {
    absl::Mutex mutex;
    bool open ABSL_GUARDED_BY(mutex) = true;
    int allowed ABSL_GUARDED_BY(mutex) = 0;
    bool held ABSL_GUARDED_BY(mutex) = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// `length` token ids that no other seed shares a prefix with.
std::vector<TokenId> Prompt(std::int32_t length, std::uint64_t seed = 0);
v1::GenerateRequest Request(const std::vector<TokenId>& prompt, std::int32_t max_tokens);

// One streaming call whose messages are kept.
class Collected {
 public:
  // Sends the request at once.
  Collected(Client* client, const v1::GenerateRequest& request, const CallOptions& options = {});
  ~Collected();  // Cancels, and waits for the end.

  void Cancel() { call_->Cancel(); }
  // Waits until at least `count` tokens of branch 0 have come or the call is over.
  void WaitForTokens(std::size_t count);
  // Waits for the end.
  const CallOutcome& Wait();
  bool over();

  // After Wait.
  const std::vector<v1::GenerateResponse>& messages() const { return messages_; }
  std::vector<TokenId> tokens(std::int32_t index = 0) const;
  std::string text(std::int32_t index = 0) const;
  // Null unless the branch finished.
  const v1::Finished* finished(std::int32_t index = 0) const;

 private:
  mutable absl::Mutex mutex_;
  std::vector<v1::GenerateResponse> messages_;  // Guarded until over_.
  std::size_t num_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  CallOutcome outcome_;
  std::shared_ptr<Call> call_;
};

// active + cached + free == capacity, and received == the sum of where requests are.
void ExpectConservation(const v1::Stats& stats);

}  // namespace quire::server
