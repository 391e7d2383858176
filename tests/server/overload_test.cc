// Too much of everything: calls, bytes, connections, and clients that do not read.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/server/harness.h"
#include "tests/server/health_client.h"
#include "tests/server/http_client.h"

// There in a process under AddressSanitizer, which keeps freed memory.
extern "C" __attribute__((weak)) void __asan_init();  // NOLINT(bugprone-reserved-identifier)

namespace quire::server {
namespace {

using ::testing::HasSubstr;

// A number of /proc/self/status: "VmRSS:" in KiB, "Threads:".
std::int64_t ProcessStatus(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t value = 0;
    if (word == key && status >> value) return value;
  }
  return -1;
}

// Sends one unary request many times; all calls share its bytes, so that what memory grows is the
// server's.
class Flood {
 public:
  Flood(const Harness& harness, int num_channels, const v1::GenerateRequest& request) {
    v1::GenerateUnaryRequest wrapped;
    *wrapped.mutable_request() = request;
    const grpc::Slice slice(wrapped.SerializeAsString());
    bytes_ = grpc::ByteBuffer(&slice, 1);
    for (int i = 0; i < num_channels; ++i) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(harness.Channel()));
    }
  }
  ~Flood() {
    for (auto& call : calls_) call->context.TryCancel();
    WaitUntilOver(calls_.size());
  }
  void Send(int count) {
    for (int i = 0; i < count; ++i) {
      auto& call = calls_.emplace_back(std::make_unique<Call>());
      stubs_[calls_.size() % stubs_.size()]->UnaryCall(
          &call->context, "/quire.v1.GenerationService/GenerateUnary", grpc::StubOptions(), &bytes_,
          &call->response, [this](const grpc::Status& status) {
            absl::MutexLock lock(&mutex_);
            ++ends_[status.error_code()];
            ++num_over_;
          });
    }
  }
  // How the calls that are over ended, once at least `count` are.
  std::map<grpc::StatusCode, int> WaitUntilOver(std::size_t count) {
    const auto enough = [this, count]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_over_ >= count; };
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1)))
        << "only " << num_over_ << " of " << count;
    return ends_;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer response;
  };
  grpc::ByteBuffer bytes_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<std::unique_ptr<Call>> calls_;
  absl::Mutex mutex_;
  std::map<grpc::StatusCode, int> ends_ ABSL_GUARDED_BY(mutex_);
  std::size_t num_over_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(Overload, C91_FloodIsRefusedFastInBoundedMemory) {
  constexpr int kCalls = 5000;
  constexpr int kQueue = 64;
  HarnessOptions options;
  options.engine.max_queued_requests = kQueue;
  options.engine.max_queued_prompt_tokens = 1 << 30;
  options.model.max_model_len = 120'000;
  options.model.num_blocks = 8192;
  Harness harness(options);
  StepGate steps(&harness.model());
  steps.Close();
  // The first request holds the engine, so that the queue can only fill.
  Collected first(&harness.client(), Request(Prompt(8), 2));
  steps.WaitUntilHeld();

  v1::GenerateRequest request = Request({}, 2);
  request.mutable_text()->set_text(std::string(100'000, 'x'));
  Flood flood(harness, 4, request);
  const std::int64_t memory_before_kib = ProcessStatus("VmRSS:");
  flood.Send(kCalls);
  ASSERT_TRUE(harness.client().GetStats().ok());  // Answered in the midst of it.
  // All but what fits the queue end while no step is made.
  const auto ends = flood.WaitUntilOver(kCalls - kQueue);
  const std::int64_t memory_after_kib = ProcessStatus("VmRSS:");
  EXPECT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends.begin()->first, grpc::StatusCode::RESOURCE_EXHAUSTED);
  if (&__asan_init == nullptr) {
    EXPECT_LT(memory_after_kib - memory_before_kib, 400'000) << "500 MB were sent";
  }
  ASSERT_TRUE(harness.client().GetStats().ok());
}

TEST(Overload, C92_MessageLimitHitsTheCallNotTheConnection) {
  HarnessOptions options;
  options.server.max_receive_bytes = 8 << 20;
  Harness harness(options);
  const auto channel = harness.Channel();
  v1::GenerationService::Stub stub(channel);
  const auto send = [&](std::size_t megabytes_tenths) {
    grpc::ClientContext context;
    v1::GenerateUnaryRequest request;
    *request.mutable_request() = Request(Prompt(5), 2);
    request.mutable_request()->set_cache_salt(std::string(megabytes_tenths * 100'000, 's'));
    v1::GenerateUnaryResponse response;
    return stub.GenerateUnary(&context, request, &response);
  };
  // Within the limit the message arrives, whatever the engine thinks of such a salt.
  for (const std::size_t tenths : {39, 41}) {
    const auto code = send(tenths).error_code();
    EXPECT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::INVALID_ARGUMENT) << code;
  }
  const grpc::Status too_large = send(200);
  EXPECT_EQ(too_large.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << too_large.error_message();
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
  EXPECT_EQ(send(0).error_code(), grpc::StatusCode::OK);
}

TEST(Overload, C92_LargeAnswersStreamToAStockClient) {
  HarnessOptions options;
  options.model.max_model_len = 8192;
  options.model.num_blocks = 600;
  options.engine.max_logprobs = 300;
  Harness harness(options);
  v1::GenerateRequest request = Request(Prompt(16), 1200);
  request.mutable_sampling()->set_logprobs(300);
  v1::GenerationService::Stub stub(harness.Channel());  // Accepts 4 MiB per message.
  grpc::ClientContext context;
  const auto reader = stub.Generate(&context, request);
  v1::GenerateResponse response;
  std::size_t bytes = 0;
  int positions = 0;
  while (reader->Read(&response)) {
    bytes += response.ByteSizeLong();
    positions += response.delta().logprobs_size();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(positions, 1200);
  EXPECT_GT(bytes, std::size_t{4} << 20);

  // In one message it does not fit, and says so; the connection is fine.
  const auto unary = harness.client().GenerateUnary(request, {});
  EXPECT_TRUE(absl::IsResourceExhausted(unary.status())) << unary.status();
  EXPECT_THAT(std::string(unary.status().message()), HasSubstr("bytes"));
  EXPECT_TRUE(harness.client().GetStats().ok());
}

// Opens streams and reads nothing from them.
class NonReaders {
 public:
  NonReaders(const Harness& harness, int count, std::int32_t max_tokens) {
    for (int i = 0; i < count; ++i) {
      auto& call = calls_.emplace_back(std::make_unique<Call>());
      grpc::ChannelArguments arguments;
      // The smallest window, so that little output is needed to fill it.
      arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
      arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
      call->channel = harness.Channel(arguments);
      call->stub = v1::GenerationService::NewStub(call->channel);
      v1::GenerateRequest request = Request(Prompt(8, static_cast<std::uint64_t>(i)), max_tokens);
      request.mutable_sampling()->set_logprobs(20);
      call->reader = call->stub->Generate(&call->context, request);
    }
  }
  // Reads on to the end and says how many tokens came and how it ended.
  std::pair<int, grpc::Status> ReadAll(std::size_t i) {
    v1::GenerateResponse response;
    int tokens = 0;
    while (calls_[i]->reader->Read(&response)) tokens += response.delta().token_ids_size();
    return {tokens, calls_[i]->reader->Finish()};
  }
  std::size_t size() const { return calls_.size(); }

 private:
  struct Call {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::GenerationService::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  };
  std::vector<std::unique_ptr<Call>> calls_;
};

TEST(Overload, C88_SlowReadersAreCutAndOthersUnaffected) {
  HarnessOptions options;
  options.model.max_model_len = 4096;
  options.model.num_blocks = 2560;
  options.server.max_unread_tokens = 256;
  options.server.cut_grace = absl::Minutes(10);
  Harness harness(options);
  NonReaders silent(harness, 8, 4000);
  // The engine never waits for them: a fast client beside them gets all it wants.
  Collected fast(&harness.client(), Request(Prompt(8, 100), 1000));
  EXPECT_TRUE(fast.Wait().status.ok()) << fast.Wait().status;
  EXPECT_EQ(fast.tokens().size(), 1000u);

  // The silent ones lose their blocks long before their 4,000 tokens.
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.blocks().active(), 0);
  EXPECT_LT(stats.generation_tokens(), 8 * 4000);
  // Who reads after all gets what was kept for it, then a clear status.
  for (std::size_t i = 0; i < silent.size(); ++i) {
    const auto [tokens, status] = silent.ReadAll(i);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("256 tokens"));
    EXPECT_GT(tokens, 256);
    EXPECT_LT(tokens, 4000);
  }
}

TEST(Overload, C88_WhoNeverReadsIsDroppedInTheEnd) {
  HarnessOptions options;
  options.model.max_model_len = 4096;
  options.model.num_blocks = 2048;
  options.server.max_unread_tokens = 256;
  options.server.cut_grace = absl::Milliseconds(100);
  Harness harness(options);
  NonReaders silent(harness, 2, 4000);
  harness.WaitForStats([](const v1::Stats& stats) {
    return stats.requests().received() == 2 && stats.requests().running() == 0 &&
           stats.requests().queued() == 0;
  });
  // No call is left that would use up the grace.
  const absl::Time start = absl::Now();
  harness.Shutdown(absl::Minutes(10));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

// The engine is done, so only the reader's own deadline can end the call.
TEST(Overload, C88_WhoNeverReadsTheLastWordsIsDropped) {
  HarnessOptions options;
  options.model.max_model_len = 4096;
  options.model.num_blocks = 2048;
  options.server.max_unread_tokens = 1 << 20;
  options.server.cut_grace = absl::Milliseconds(100);
  Harness harness(options);
  NonReaders silent(harness, 2, 4000);
  harness.WaitUntilIdle();
  const absl::Time start = absl::Now();
  harness.Shutdown(absl::Minutes(10));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST(Overload, C89_IdleConnectionsAndQueuedStreamsCostNoThreads) {
  Harness harness;
  harness.client().GetBlockMap().IgnoreError();
  const std::int64_t threads = ProcessStatus("Threads:");
  std::vector<std::shared_ptr<grpc::Channel>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(harness.Channel());
    idle.back()->GetState(true);
  }
  for (const auto& channel : idle) {
    ASSERT_TRUE(
        channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30)));
  }
  StepGate steps(&harness.model());
  steps.Close();
  std::vector<std::unique_ptr<Collected>> queued;
  for (std::uint64_t i = 0; i < 64; ++i) {
    queued.push_back(std::make_unique<Collected>(&harness.client(), Request(Prompt(8, i), 4)));
  }
  steps.WaitUntilHeld();
  EXPECT_LE(ProcessStatus("Threads:"), threads + 4);
  const absl::Time start = absl::Now();
  EXPECT_EQ(HttpGet(harness.http_port(), "/metrics").status, 200);
  EXPECT_TRUE(harness.client().GetStats().ok());
  EXPECT_EQ(CheckHealth(harness.Channel(), ""), Health::kServing);
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
  steps.Open();
  for (auto& call : queued) EXPECT_TRUE(call->Wait().status.ok());
}

}  // namespace
}  // namespace quire::server
