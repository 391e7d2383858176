// The server around the generation calls: life cycle, health, control and statistics.
#include "server/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/server/harness.h"
#include "tests/server/health_client.h"
#include "tests/server/http_client.h"

namespace quire::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char* const kServices[] = {"", "quire.v1.GenerationService", "quire.v1.EngineService",
                                 "quire.v1.StatsService"};

TEST(Server, C97_NotServingUntilTheModelIsLoaded) {
  HarnessOptions options;
  options.serve = false;
  Harness harness(options);
  for (const char* service : kServices) {
    EXPECT_EQ(CheckHealth(harness.Channel(), service), Health::kNotServing) << service;
  }
  EXPECT_EQ(CheckHealth(harness.Channel(), "no.such.Service"), Health::kUnknownService);
  EXPECT_TRUE(absl::IsUnavailable(harness.client().GetStats().status()));
  EXPECT_TRUE(absl::IsUnavailable(harness.client().GetBlockMap().status()));
  EXPECT_TRUE(absl::IsUnavailable(harness.client().GetServerInfo().status()));
  Collected early(&harness.client(), Request(Prompt(5), 2));
  EXPECT_TRUE(absl::IsUnavailable(early.Wait().status));
  EXPECT_EQ(HttpGet(harness.http_port(), "/health").status, 503);
  EXPECT_THAT(HttpGet(harness.http_port(), "/health").body, HasSubstr("loading"));
  EXPECT_EQ(HttpGet(harness.http_port(), "/metrics").status, 503);

  harness.Serve();
  for (const char* service : kServices) {
    EXPECT_EQ(CheckHealth(harness.Channel(), service), Health::kServing) << service;
  }
  EXPECT_EQ(HttpGet(harness.http_port(), "/health").status, 200);
  Collected call(&harness.client(), Request(Prompt(5), 2));
  EXPECT_TRUE(call.Wait().status.ok());
}

TEST(Server, C97_HealthAnswersFastInABurst) {
  Harness harness;
  std::vector<std::unique_ptr<Collected>> calls;
  for (std::uint64_t i = 0; i < 200; ++i) {
    calls.push_back(std::make_unique<Collected>(&harness.client(), Request(Prompt(60, i), 20)));
    if (i % 20 == 0) {
      const absl::Time start = absl::Now();
      EXPECT_EQ(CheckHealth(harness.Channel(), ""), Health::kServing);
      EXPECT_LT(absl::Now() - start, absl::Seconds(1));
    }
  }
  for (auto& call : calls) EXPECT_TRUE(call->Wait().status.ok());
}

TEST(Server, C96_FailedEngineStopsServing) {
  Harness harness;
  harness.model().SetOnStep([](const kernels::BatchView&) -> absl::Status {
    throw std::runtime_error("the kernel fell over");
  });
  Collected call(&harness.client(), Request(Prompt(5), 2));
  const absl::Status status = call.Wait().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  // Details stay in the log.
  EXPECT_EQ(status.message().find("fell over"), std::string::npos);
}

TEST(Server, C96_ALongStepThatComputesIsNotStuck) {
  HarnessOptions options;
  options.server.stuck_after = absl::Milliseconds(300);
  Harness harness(options);
  // One step of two seconds that reports progress all the while.
  harness.model().SetOnStep([&](const kernels::BatchView&) {
    for (const absl::Time end = absl::Now() + absl::Seconds(2); absl::Now() < end;) {
      harness.model().ReportProgress();
    }
    return absl::OkStatus();
  });
  const auto answer = harness.client().GenerateUnary(Request(Prompt(5), 1), {});
  EXPECT_TRUE(answer.ok()) << answer.status();
}

TEST(Server, C96_StuckEngineEndsItsCallsAndRecovers) {
  HarnessOptions options;
  options.server.stuck_after = absl::Milliseconds(300);
  Harness harness(options);
  StepGate steps(&harness.model());
  steps.Close();
  Collected call(&harness.client(), Request(Prompt(5), 200));
  steps.WaitUntilHeld();
  const absl::Status status = call.Wait().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no step"));
  EXPECT_EQ(CheckHealth(harness.Channel(), ""), Health::kNotServing);
  EXPECT_THAT(HttpGet(harness.http_port(), "/health").body, HasSubstr("stuck"));
  // Newcomers do not hang either.
  EXPECT_EQ(harness.client().GenerateUnary(Request(Prompt(5, 2), 2), {}).status().code(),
            absl::StatusCode::kInternal);

  steps.Open();
  EXPECT_TRUE(WaitForHealth(harness.Channel(), "", Health::kServing));
  EXPECT_TRUE(harness.client().GenerateUnary(Request(Prompt(5, 3), 2), {}).ok());
  EXPECT_EQ(harness.WaitUntilIdle().blocks().active(), 0);
}

TEST(Server, PortInUseIsAClearError) {
  Harness harness;
  ServerOptions options;
  options.port = harness.server().grpc_port();
  options.http_port.reset();
  auto second = Server::Start(options);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(options.port)));
  options.port = 0;
  options.http_port = harness.http_port();
  second = Server::Start(options);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(std::to_string(harness.http_port())));
}

TEST(Server, C135_BadOptionsNameTheFlag) {
  const auto refusal = [](auto spoil) {
    ServerOptions options;
    options.port = 0;
    spoil(&options);
    const auto server = Server::Start(options);
    EXPECT_TRUE(absl::IsInvalidArgument(server.status())) << server.status();
    return std::string(server.status().message());
  };
  EXPECT_THAT(refusal([](auto* o) { o->host = "0.0.0.0"; }), HasSubstr("--insecure-listen"));
  EXPECT_THAT(refusal([](auto* o) { o->host = "example.com"; }), HasSubstr("--host"));
  EXPECT_THAT(refusal([](auto* o) { o->port = 65536; }), HasSubstr("--port"));
  EXPECT_THAT(refusal([](auto* o) { o->http_port = -1; }), HasSubstr("--http-port"));
  EXPECT_THAT(refusal([](auto* o) { o->max_receive_bytes = 0; }), HasSubstr("max-receive"));
  EXPECT_THAT(refusal([](auto* o) { o->max_concurrent_streams = 0; }), HasSubstr("streams"));
}

TEST(Server, TellsWhatItIs) {
  Harness harness;
  const auto info = harness.client().GetServerInfo();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->version(), "test");
  EXPECT_EQ(info->settings().at("max-num-seqs"), "64");
  EXPECT_GT(info->uptime_seconds(), 0);
  const auto model = harness.client().GetModelInfo();
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->served_model_name(), kModelName);
}

TEST(Server, TokenizesBothWays) {
  Harness harness;
  v1::TokenizeRequest request;
  EXPECT_TRUE(absl::IsInvalidArgument(harness.client().Tokenize(request).status()));
  request.mutable_text()->set_text("héy");
  const auto ids = harness.client().Tokenize(request);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(ids->token_ids(), ElementsAre('h', 0xc3, 0xa9, 'y'));
  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = ids->token_ids();
  const auto text = harness.client().Detokenize(back);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->text(), "héy");
}

TEST(Server, WatchStatsShowsConsistentSnapshotsUntilCancelled) {
  Harness harness;
  std::atomic<int> seen = 0;
  absl::Notification fourth;
  absl::Notification done;
  CallOutcome outcome;
  std::uint64_t last = 0;
  const auto watch = harness.client().WatchStats(
      absl::Milliseconds(10),
      [&](const v1::Stats& stats) {
        ExpectConservation(stats);
        EXPECT_GE(stats.sequence_number(), last);
        last = stats.sequence_number();
        if (++seen == 4) fourth.Notify();
      },
      [&](const CallOutcome& end) {
        outcome = end;
        done.Notify();
      });
  Collected call(&harness.client(), Request(Prompt(30), 50));
  fourth.WaitForNotification();
  watch->Cancel();
  done.WaitForNotification();
  EXPECT_TRUE(absl::IsCancelled(outcome.status)) << outcome.status;
}

TEST(Server, WatchStatsRefusesTooShortAndTooLongAnInterval) {
  Harness harness;
  for (const absl::Duration interval : {absl::Milliseconds(9), absl::Milliseconds(60'001)}) {
    absl::Notification done;
    CallOutcome outcome;
    harness.client().WatchStats(
        interval, [](const v1::Stats&) {},
        [&](const CallOutcome& end) {
          outcome = end;
          done.Notify();
        });
    done.WaitForNotification();
    EXPECT_TRUE(absl::IsInvalidArgument(outcome.status));
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("interval_ms"));
  }
}

TEST(Server, BlockMapShowsWhoHoldsWhat) {
  Harness harness;
  StepGate steps(&harness.model());
  steps.Close();
  steps.Allow(2);
  v1::GenerateRequest request = Request(Prompt(40), 900);
  request.set_request_id("holder");
  Collected call(&harness.client(), request);
  steps.WaitUntilHeld();
  // The engine thread answers between two steps, so it must be let through some.
  absl::StatusOr<v1::GetBlockMapResponse> map;
  std::atomic<bool> answered = false;
  std::thread asker([&] {
    map = harness.client().GetBlockMap();
    answered = true;
  });
  while (!answered) {
    steps.Allow(1);
    steps.WaitUntilHeld();
  }
  asker.join();
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->states_size(), 64);
  ASSERT_EQ(map->sequences_size(), 1);
  const auto& sequence = map->sequences(0);
  EXPECT_EQ(sequence.request_id(), "holder");
  EXPECT_GE(sequence.num_tokens(), 41);
  EXPECT_EQ(sequence.block_ids_size(), (sequence.num_computed_tokens() + 15) / 16);
  for (const std::int32_t block : sequence.block_ids()) {
    EXPECT_EQ(map->states(block), v1::BLOCK_STATE_ACTIVE);
    EXPECT_EQ(map->owners(block), 1);
  }
  EXPECT_EQ(std::count(map->states().begin(), map->states().end(), v1::BLOCK_STATE_ACTIVE),
            sequence.block_ids_size());
  EXPECT_EQ(map->stats().active(), sequence.block_ids_size());
  EXPECT_EQ(map->stats().useful_slots(), sequence.num_computed_tokens());
}

TEST(Server, ResetPrefixCacheForgetsWhatNobodyUses) {
  Harness harness;
  const auto cached = [&] {
    Collected call(&harness.client(), Request(Prompt(64), 2));
    EXPECT_TRUE(call.Wait().status.ok());
    return call.messages().front().accepted().cached_tokens();
  };
  EXPECT_EQ(cached(), 0);
  EXPECT_GT(cached(), 0);
  const std::int64_t held = harness.WaitUntilIdle().blocks().cached();
  EXPECT_GT(held, 0);
  const auto freed = harness.client().ResetPrefixCache();
  ASSERT_TRUE(freed.ok()) << freed.status();
  EXPECT_EQ(*freed, held);
  EXPECT_EQ(cached(), 0);
}

TEST(Server, MetricsAddUpOnEveryScrape) {
  Harness harness;
  std::vector<std::unique_ptr<Collected>> calls;
  for (std::uint64_t i = 0; i < 40; ++i) {
    calls.push_back(std::make_unique<Collected>(&harness.client(), Request(Prompt(50, i), 40)));
  }
  const auto value = [](const std::string& text, const std::string& name) {
    const auto at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + name.size() + 2));
  };
  for (int scrape = 0; scrape < 50; ++scrape) {
    const HttpAnswer answer = HttpGet(harness.http_port(), "/metrics");
    ASSERT_EQ(answer.status, 200);
    EXPECT_THAT(answer.head, HasSubstr("text/plain; version=0.0.4"));
    const auto blocks = [&](const char* state) {
      return value(answer.body, std::string("quire_kv_blocks{state=\"") + state + "\"}");
    };
    EXPECT_EQ(blocks("active") + blocks("cached") + blocks("free"), 64);
    EXPECT_EQ(value(answer.body, "quire_kv_blocks_capacity"), 64);
    std::int64_t known =
        value(answer.body, "quire_requests_queued") + value(answer.body, "quire_requests_running");
    for (const char* outcome :
         {"stop", "length", "cancelled", "deadline_exceeded", "refused", "failed"}) {
      known += value(answer.body, std::string("quire_requests_total{outcome=\"") + outcome + "\"}");
    }
    EXPECT_EQ(value(answer.body, "quire_requests_received_total"), known);
  }
  for (auto& call : calls) EXPECT_TRUE(call->Wait().status.ok());
}

TEST(Server, HttpKnowsItsTwoPages) {
  Harness harness;
  EXPECT_EQ(HttpGet(harness.http_port(), "/nothing").status, 404);
  HttpConnection connection(harness.http_port());
  connection.Send("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(connection.Read()->status, 405);
}

TEST(Server, DrainRpcRefusesNewWorkAndWaitsForOld) {
  Harness harness;
  EXPECT_FALSE(harness.client().GetStats()->draining());
  absl::Notification watch_sees_it;
  absl::Notification watch_over;
  const auto watch = harness.client().WatchStats(
      absl::Milliseconds(10),
      [&](const v1::Stats& stats) {
        if (stats.draining() && !watch_sees_it.HasBeenNotified()) watch_sees_it.Notify();
      },
      [&](const CallOutcome&) { watch_over.Notify(); });
  StepGate steps(&harness.model());
  steps.Close();
  Collected running(&harness.client(), Request(Prompt(20), 30));
  steps.WaitUntilHeld();
  const auto other = harness.Connect();
  absl::StatusOr<bool> idle = false;
  std::thread drainer([&] { idle = other->Drain(absl::Minutes(1)); });
  EXPECT_TRUE(WaitForHealth(harness.Channel(), "", Health::kNotServing));
  Collected late(&harness.client(), Request(Prompt(5), 2));
  EXPECT_TRUE(absl::IsUnavailable(late.Wait().status)) << late.Wait().status;
  EXPECT_TRUE(harness.client().GetStats()->draining());
  watch_sees_it.WaitForNotification();
  watch->Cancel();
  watch_over.WaitForNotification();
  steps.Open();
  drainer.join();
  ASSERT_TRUE(idle.ok()) << idle.status();
  EXPECT_TRUE(*idle);
  EXPECT_TRUE(running.Wait().status.ok());
  EXPECT_EQ(running.tokens().size(), 30u);
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.requests().received(), 2);
  EXPECT_EQ(stats.requests().refused(), 1) << "at the door";
  EXPECT_TRUE(stats.healthy());
}

TEST(Server, DrainRpcAbortsWhatIsLeftWhenItsTimeIsUp) {
  Harness harness(LongAnswers());
  Collected running(&harness.client(), Request(Prompt(20), kEndless));
  running.WaitForTokens(1);
  const auto idle = harness.Connect()->Drain(absl::Milliseconds(50));
  ASSERT_TRUE(idle.ok()) << idle.status();
  EXPECT_FALSE(*idle);
  EXPECT_EQ(running.Wait().status.code(), absl::StatusCode::kAborted) << running.Wait().status;
  EXPECT_TRUE(absl::IsInvalidArgument(harness.client().Drain(absl::Seconds(-1)).status()));
  EXPECT_EQ(harness.WaitUntilIdle().blocks().active(), 0);
}

}  // namespace
}  // namespace quire::server
