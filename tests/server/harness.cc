#include "tests/server/harness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/check.h"
#include "tests/fakes/fake_tokenizer.h"

namespace quire::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

}  // namespace

HarnessOptions LongAnswers() {
  HarnessOptions options;
  options.model.max_model_len = 16'384;
  options.model.num_blocks = 20'480;
  return options;
}

Harness::Harness(HarnessOptions options)
    : options_(std::move(options)), control_(std::make_shared<fakes::FakeModelControl>()) {
  options_.server.port = 0;
  options_.server.http_port = 0;
  auto server = Server::Start(options_.server);
  QUIRE_CHECK(server.ok()) << server.status().ToString();
  server_ = *std::move(server);

  options_.engine.scheduler.max_model_len = options_.model.max_model_len;
  engine::ModelTraits traits;
  traits.eos_token_ids = {fakes::FakeTokenizer::kEos};
  auto engine = engine::Engine::Create(
      options_.engine, std::make_unique<fakes::FakeModelRunner>(options_.model, control_),
      std::make_shared<fakes::FakeTokenizer>(), nullptr, traits, server_->sink());
  QUIRE_CHECK(engine.ok()) << engine.status().ToString();
  engine_ = *std::move(engine);
  if (options_.serve) Serve();
  client_ = Connect();
}

Harness::~Harness() {
  client_.reset();
  Shutdown(absl::ZeroDuration());
}

void Harness::Serve() {
  ServedModel model;
  model.engine = engine_.get();
  model.model_info.set_served_model_name(kModelName);
  model.model_info.set_vocab_size(options_.model.vocab_size);
  model.server_info.set_version("test");
  model.server_info.set_block_size(options_.model.block_size);
  model.server_info.set_num_blocks(options_.model.num_blocks);
  (*model.server_info.mutable_settings())["max-num-seqs"] = "64";
  server_->Serve(std::move(model));
}

void Harness::Shutdown(absl::Duration grace) {
  server_->Shutdown(grace);
  engine_.reset();
}

std::string Harness::address() const { return fmt::format("127.0.0.1:{}", server_->grpc_port()); }

std::unique_ptr<Client> Harness::Connect(std::int32_t num_connections) const {
  ClientOptions options;
  options.target = address();
  options.num_connections = num_connections;
  options.connect_timeout = kPatience;
  auto client = Client::Connect(options);
  QUIRE_CHECK(client.ok()) << client.status().ToString();
  return *std::move(client);
}

std::shared_ptr<grpc::Channel> Harness::Channel(grpc::ChannelArguments arguments) const {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments);
}

v1::Stats Harness::WaitForStats(const std::function<bool(const v1::Stats&)>& wanted) {
  const absl::Time deadline = absl::Now() + kPatience;
  std::uint64_t seen = 0;
  while (true) {
    auto stats = client_->GetStats();
    QUIRE_CHECK(stats.ok()) << stats.status().ToString();
    if (wanted(*stats)) return *stats;
    if (absl::Now() > deadline) {
      ADD_FAILURE() << "waited too long; last: " << stats->ShortDebugString();
      return *stats;
    }
    seen = std::max<std::uint64_t>(seen, stats->sequence_number());
    engine_->WaitForStats(seen, absl::Milliseconds(100));
  }
}

v1::Stats Harness::WaitUntilIdle() {
  return WaitForStats([](const v1::Stats& stats) {
    return stats.requests().queued() == 0 && stats.requests().running() == 0;
  });
}

StepGate::StepGate(fakes::FakeModelControl* model) : model_(model) {
  model_->SetOnStep([state = state_](const kernels::BatchView&) {
    absl::MutexLock lock(&state->mutex);
    state->held = true;
    state->mutex.Await(absl::Condition(
        +[](State* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(s->mutex) { return s->open || s->allowed > 0; },
        state.get()));
    state->held = false;
    if (!state->open) --state->allowed;
    return absl::OkStatus();
  });
}

StepGate::~StepGate() { Open(); }

void StepGate::Close() {
  absl::MutexLock lock(&state_->mutex);
  state_->open = false;
}

void StepGate::Open() {
  absl::MutexLock lock(&state_->mutex);
  state_->open = true;
}

void StepGate::Allow(int steps) {
  absl::MutexLock lock(&state_->mutex);
  state_->allowed += steps;
}

void StepGate::WaitUntilHeld() {
  absl::MutexLock lock(&state_->mutex);
  const bool held =
      state_->mutex.AwaitWithTimeout(absl::Condition(
                                         +[](State* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(s->mutex) {
                                           return s->held && s->allowed == 0;
                                         },
                                         state_.get()),
                                     kPatience);
  EXPECT_TRUE(held) << "the engine made no step";
}

std::vector<TokenId> Prompt(std::int32_t length, std::uint64_t seed) {
  std::vector<TokenId> out;
  std::uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (std::int32_t i = 0; i < length; ++i) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    out.push_back(static_cast<TokenId>((x >> 33) % 256));
  }
  return out;
}

v1::GenerateRequest Request(const std::vector<TokenId>& prompt, std::int32_t max_tokens) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_max_tokens(max_tokens);
  request.mutable_sampling()->set_ignore_eos(true);
  return request;
}

Collected::Collected(Client* client, const v1::GenerateRequest& request,
                     const CallOptions& options) {
  call_ = client->Generate(
      request, options,
      [this](const v1::GenerateResponse& response) {
        absl::MutexLock lock(&mutex_);
        messages_.push_back(response);
        if (response.has_delta() && response.delta().index() == 0) {
          num_tokens_ += static_cast<std::size_t>(response.delta().token_ids_size());
        }
      },
      [this](const CallOutcome& outcome) {
        absl::MutexLock lock(&mutex_);
        outcome_ = outcome;
        over_ = true;
      });
}

Collected::~Collected() {
  call_->Cancel();
  Wait();
}

void Collected::WaitForTokens(std::size_t count) {
  const auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return over_ || num_tokens_ >= count;
  };
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience))
      << "only " << num_tokens_ << " tokens came";
}

const CallOutcome& Collected::Wait() {
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&over_), kPatience)) << "no end came";
  return outcome_;
}

bool Collected::over() {
  absl::MutexLock lock(&mutex_);
  return over_;
}

std::vector<TokenId> Collected::tokens(std::int32_t index) const {
  std::vector<TokenId> out;
  for (const auto& message : messages_) {
    if (message.has_delta() && message.delta().index() == index) {
      out.insert(out.end(), message.delta().token_ids().begin(), message.delta().token_ids().end());
    }
  }
  return out;
}

std::string Collected::text(std::int32_t index) const {
  std::string out;
  for (const auto& message : messages_) {
    if (message.has_delta() && message.delta().index() == index) out += message.delta().text();
  }
  return out;
}

const v1::Finished* Collected::finished(std::int32_t index) const {
  for (const auto& message : messages_) {
    if (message.has_finished() && message.finished().index() == index) return &message.finished();
  }
  return nullptr;
}

void ExpectConservation(const v1::Stats& stats) {
  const auto& blocks = stats.blocks();
  EXPECT_EQ(blocks.active() + blocks.cached() + blocks.free(), blocks.capacity());
  EXPECT_GE(blocks.active(), 0);
  EXPECT_GE(blocks.free(), 0);
  const auto& r = stats.requests();
  EXPECT_EQ(r.received(), r.queued() + r.running() + r.finished_stop() + r.finished_length() +
                              r.cancelled() + r.deadline_exceeded() + r.refused() + r.failed());
  EXPECT_GE(r.queued(), 0);
  EXPECT_GE(r.running(), 0);
}

}  // namespace quire::server
