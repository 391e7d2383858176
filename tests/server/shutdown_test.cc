// Ending a server: with work, without, and with clients that do not help.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/server/harness.h"
#include "tests/server/health_client.h"

namespace quire::server {
namespace {

absl::Duration Timed(const std::function<void()>& action) {
  const absl::Time start = absl::Now();
  action();
  return absl::Now() - start;
}

TEST(Shutdown, C94_IdleServerGoesAtOnce) {
  Harness harness;
  EXPECT_LT(Timed([&] { harness.Shutdown(absl::Seconds(30)); }), absl::Seconds(1));
}

TEST(Shutdown, NeverServedServerGoesAtOnce) {
  HarnessOptions options;
  options.serve = false;
  Harness harness(options);
  EXPECT_LT(Timed([&] { harness.Shutdown(absl::Seconds(30)); }), absl::Seconds(1));
}

TEST(Shutdown, C94_LiveStreamsFlowOnAndNewCallsAreRefused) {
  Harness harness;
  StepGate steps(&harness.model());
  steps.Close();
  steps.Allow(20);
  Collected call(&harness.client(), Request(Prompt(16), 200));
  steps.WaitUntilHeld();
  std::thread stopper([&] { harness.Shutdown(absl::Minutes(1)); });
  EXPECT_TRUE(WaitForHealth(harness.Channel(), "", Health::kNotServing));
  EXPECT_TRUE(WaitForHealth(harness.Channel(), "quire.v1.GenerationService", Health::kNotServing));
  Collected late(&harness.client(), Request(Prompt(5), 2));
  EXPECT_TRUE(absl::IsUnavailable(late.Wait().status)) << late.Wait().status;
  steps.Open();
  stopper.join();
  EXPECT_TRUE(call.Wait().status.ok()) << call.Wait().status;
  EXPECT_EQ(call.tokens().size(), 200u);
}

TEST(Shutdown, C94_SecondSignalEndsTheGrace) {
  Harness harness(LongAnswers());
  StepGate steps(&harness.model());
  steps.Close();
  Collected call(&harness.client(), Request(Prompt(16), kEndless));
  steps.WaitUntilHeld();
  std::thread stopper([&] { harness.Shutdown(absl::Hours(1)); });
  EXPECT_TRUE(WaitForHealth(harness.Channel(), "", Health::kNotServing));
  harness.server().StopNow();
  steps.Open();
  stopper.join();
  EXPECT_EQ(call.Wait().status.code(), absl::StatusCode::kAborted) << call.Wait().status;
}

TEST(Shutdown, C31_C93_LiveStreamsEndWithOneStatusEach) {
  for (int round = 0; round < 5; ++round) {
    Harness harness(LongAnswers());
    const auto client = harness.Connect();
    std::vector<std::unique_ptr<Collected>> calls;
    for (std::uint64_t i = 0; i < 20; ++i) {
      calls.push_back(std::make_unique<Collected>(client.get(), Request(Prompt(100, i), kEndless)));
    }
    calls.front()->WaitForTokens(1);
    const absl::Duration took = Timed([&] { harness.Shutdown(absl::ZeroDuration()); });
    EXPECT_LT(took, absl::Seconds(3));
    for (auto& call : calls) {
      const absl::Status status = call->Wait().status;
      EXPECT_TRUE(absl::IsAborted(status) || absl::IsUnavailable(status)) << status;
    }
  }
}

TEST(Shutdown, C93_AClientThatNeverReadsDoesNotHoldIt) {
  Harness harness(LongAnswers());
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  v1::GenerationService::Stub stub(harness.Channel(arguments));
  grpc::ClientContext context;
  v1::GenerateRequest request = Request(Prompt(16), kEndless);
  request.mutable_sampling()->set_logprobs(20);
  const auto reader = stub.Generate(&context, request);
  // Far enough for the client's window to be full.
  harness.WaitForStats([](const v1::Stats& stats) { return stats.generation_tokens() > 800; });
  const absl::Duration took = Timed([&] { harness.Shutdown(absl::Milliseconds(200)); });
  EXPECT_LT(took, absl::Seconds(3));
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(Shutdown, C93_ACallThatNeverSendsDoesNotHoldIt) {
  Harness harness;
  grpc::GenericStub stub(harness.Channel());
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  auto call = stub.PrepareCall(&context, "/quire.v1.GenerationService/GenerateUnary", &queue);
  call->StartCall(&queue);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  ASSERT_TRUE(harness.client().GetStats().ok());
  EXPECT_LT(Timed([&] { harness.Shutdown(absl::Milliseconds(200)); }), absl::Seconds(3));
  grpc::Status status;
  call->Finish(&status, &status);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_FALSE(status.ok());
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

TEST(Shutdown, WatchersAndDrainersDoNotHoldIt) {
  Harness harness;
  StepGate steps(&harness.model());
  steps.Close();
  Collected running(&harness.client(), Request(Prompt(20), 900));
  steps.WaitUntilHeld();
  absl::Notification watching;
  absl::Notification watch_over;
  CallOutcome watch_end;
  const auto watch = harness.client().WatchStats(
      absl::Minutes(1), [&](const v1::Stats&) { watching.Notify(); },
      [&](const CallOutcome& end) {
        watch_end = end;
        watch_over.Notify();
      });
  watching.WaitForNotification();
  const auto other = harness.Connect();
  std::thread drainer([&] { other->Drain(absl::Hours(1)).status().IgnoreError(); });
  EXPECT_TRUE(WaitForHealth(harness.Channel(), "", Health::kNotServing));
  steps.Open();
  EXPECT_LT(Timed([&] { harness.Shutdown(absl::ZeroDuration()); }), absl::Seconds(3));
  drainer.join();
  watch_over.WaitForNotification();
  EXPECT_TRUE(absl::IsUnavailable(watch_end.status)) << watch_end.status;
}

TEST(Shutdown, TwentyTimesInARow) {
  for (int round = 0; round < 20; ++round) {
    Harness harness;
    Collected call(&harness.client(), Request(Prompt(30), 400));
    if (round % 2 == 0) call.WaitForTokens(1);
    harness.Shutdown(round % 4 == 0 ? absl::Seconds(30) : absl::ZeroDuration());
    const absl::Status status = call.Wait().status;
    if (round % 4 == 0) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

}  // namespace
}  // namespace quire::server
