// The event loop and the figures it makes, added up by hand.
#include "simulator/simulation.h"

#include <gtest/gtest.h>

#include "simulator/workload.h"
#include "tests/simulator/simulation_world.h"

namespace quire::simulator {
namespace {

using End = RequestOutcome::End;

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

TEST(SimulationTest, OneRequestTakesItsSteps) {
  const std::vector<Request> requests = {MakeRequest(5, 3, 2)};
  const SimulationResult result =
      RunSystem(SmallSystem(SystemKind::kQuire, 64), requests, {.step_time = kSimpleSteps});
  const RequestOutcome& outcome = result.requests[0];
  EXPECT_EQ(outcome.end, End::kFinished);
  EXPECT_DOUBLE_EQ(Seconds(outcome.due), 2);
  EXPECT_DOUBLE_EQ(outcome.queue_s(), 0);
  EXPECT_DOUBLE_EQ(outcome.ttft_s(), 1.5);                // 1 + 5 x 0.1
  EXPECT_DOUBLE_EQ(outcome.latency_s(), 1.5 + 2 * 1.01);  // Two decodes.
  EXPECT_EQ(outcome.prompt_tokens, 5);
  EXPECT_EQ(outcome.output_tokens, 3);
  EXPECT_EQ(result.num_steps, 3);
  EXPECT_DOUBLE_EQ(Seconds(result.duration), 5.52);
  EXPECT_DOUBLE_EQ(result.busy_s, 3.52);
  EXPECT_DOUBLE_EQ(result.MeanNormalizedLatency(requests), 3.52 / 3);
}

TEST(SimulationTest, TwoRequestsShareStepsAndTheMemoryIsAveragedOverTime) {
  const std::vector<Request> requests = {MakeRequest(4, 3), MakeRequest(6, 2, 0.5)};
  const SimulationResult result =
      RunSystem(SmallSystem(SystemKind::kQuire, 64), requests, {.step_time = kSimpleSteps});
  // [0, 1.4] prompt 0; [1.4, 3.01] decode 0 and prompt 1; [3.01, 4.03] decode both.
  EXPECT_EQ(result.num_steps, 3);
  EXPECT_DOUBLE_EQ(Seconds(result.requests[0].last_token), 4.03);
  EXPECT_DOUBLE_EQ(result.requests[1].queue_s(), 0.9);
  EXPECT_DOUBLE_EQ(Seconds(result.requests[1].first_token), 3.01);
  EXPECT_DOUBLE_EQ(Seconds(result.requests[1].last_token), 4.03);
  EXPECT_NEAR(result.mean_batched, (1.4 + 2 * 1.61 + 2 * 1.02) / 4.03, 1e-9);
  EXPECT_EQ(result.peak_batched, 2);
  // Published: after step 1 one block with 4 tokens, after step 2 two of 5 and two of 6.
  const double useful = 1.61 * 4 + 1.02 * 11, reserved = 1.61 * 4 + 1.02 * 16;
  EXPECT_NEAR(result.useful_share, useful / reserved, 1e-9);
  EXPECT_NEAR(result.pool_useful_share, useful / (4.03 * 64), 1e-9);
  // Inside: step 1 writes 4 of 4; step 2 holds 4 + 0 and writes 1 + 6 in 2 + 2 blocks; step 3 holds
  // 5 + 6 and writes 1 + 1.
  EXPECT_NEAR(result.useful_share_inside,
              (1.4 * 2 + 1.61 * 7.5 + 1.02 * 12) / (1.4 * 4 + 1.61 * 16 + 1.02 * 16), 1e-9);
  EXPECT_EQ(result.counters.prefill_tokens, 10);
  EXPECT_EQ(result.counters.decode_tokens, 3);
}

TEST(SimulationTest, OnlyTheWindowIsAveraged) {
  const std::vector<Request> requests = {MakeRequest(4, 3), MakeRequest(6, 2, 0.5)};
  SimulationOptions options{.step_time = kSimpleSteps};
  options.measure_from = absl::Seconds(3);
  EXPECT_NEAR(RunSystem(SmallSystem(SystemKind::kQuire, 64), requests, options).useful_share,
              11.0 / 16, 1e-9);
  options.measure_from = absl::ZeroDuration();
  options.measure_until = absl::Seconds(1);
  EXPECT_NEAR(RunSystem(SmallSystem(SystemKind::kQuire, 64), requests, options).mean_batched, 1,
              1e-9);
}

TEST(SimulationTest, WhatArrivesAtTheEndOfAStepIsInTheNextOne) {
  const std::vector<Request> requests = {MakeRequest(4, 3), MakeRequest(4, 1, 1)};
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kQuire, 64), requests);
  EXPECT_DOUBLE_EQ(Seconds(result.requests[1].admitted), 1);
  EXPECT_DOUBLE_EQ(Seconds(result.requests[1].first_token), 2);
  EXPECT_EQ(result.num_steps, 3);
}

TEST(SimulationTest, ATurnComesAfterTheOneBeforeAndComputesOnlyWhatIsNew) {
  WorkloadOptions workload{.num_requests = 1,
                           .input = {.mean = 10},
                           .output = {.mean = 5},
                           .num_turns = 2,
                           .mean_think_time = absl::Seconds(7)};
  const std::vector<Request> requests = MakeWorkload(workload);
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kQuire, 256), requests);
  EXPECT_EQ(result.requests[1].due, result.requests[0].last_token + requests[1].arrival);
  // 14 of the first turn's 15 tokens are computed, 3 blocks of 4 of them full.
  EXPECT_EQ(result.requests[1].cached_tokens, 12);
  EXPECT_EQ(result.counters.prefix_hit_tokens, 12);
  EXPECT_EQ(result.counters.prefix_query_tokens, 10 + 25);
  EXPECT_EQ(result.counters.prefill_tokens, 10 + 13);
}

TEST(SimulationTest, WhatNeverFitsIsRefusedAndWhatOutgrowsThePoolEndsEarly) {
  std::vector<Request> requests = {MakeRequest(9, 1), MakeRequest(4, 20)};
  requests.push_back(MakeRequest(2, 1));
  requests.back().after = 0;  // Refused ones have followers, too.
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kQuire, 8), requests);
  EXPECT_EQ(result.requests[0].end, End::kRefused);
  EXPECT_NE(result.first_refusal.find("8 slots"), std::string::npos) << result.first_refusal;
  EXPECT_EQ(result.requests[1].end, End::kEndedEarly);
  // 8 slots hold 8 computed tokens; the ninth known one, the fifth of the answer, is the last.
  EXPECT_EQ(result.requests[1].output_tokens, 5);
  EXPECT_EQ(result.requests[2].end, End::kFinished);
  EXPECT_EQ(result.MeanNormalizedLatency(requests), result.requests[2].latency_s());
}

TEST(SimulationTest, AHopelessLoadIsGivenUp) {
  std::vector<Request> requests;
  for (int i = 0; i < 100; ++i) requests.push_back(MakeRequest(8, 8, i * 0.01));
  SimulationOptions options{.step_time = kEvenSteps};
  options.give_up_waiting = 20;
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kQuire, 16), requests, options);
  EXPECT_TRUE(result.given_up);
  EXPECT_EQ(result.requests.back().end, End::kNone);
}

TEST(SimulationTest, RoundRobinTakesTurnsAndReplicasDoNotShareAnything) {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(MakeRequest(4, 2));
  SimulationOptions options{.step_time = kSimpleSteps, .num_replicas = 3};
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kQuire, 64), requests, options);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(result.requests[i].replica, static_cast<std::int32_t>(i % 3));
    EXPECT_DOUBLE_EQ(result.requests[i].ttft_s(), 1.8);  // Two prompts of 4 in one step.
  }
  EXPECT_EQ(result.num_steps, 6);
  EXPECT_NEAR(result.busy_s, 3 * (1.8 + 1.02), 1e-9);
}

class AllSystemsTest : public ::testing::TestWithParam<SystemKind> {};

TEST_P(AllSystemsTest, EveryTokenIsComputedOnceAndRecomputedOnesAreCounted) {
  WorkloadOptions workload = ShareGptShape();
  workload.num_requests = 200;
  workload.request_rate = 5;
  workload.num_prefixes = 2;
  workload.prefix_len = 40;
  const std::vector<Request> requests = MakeWorkload(workload);
  const SimulationResult result = RunSystem(SmallSystem(GetParam(), 6000, 16), requests,
                                            {.step_time = StepTimeModel::Opt13bOnA100()});
  std::int64_t known = 0, outputs = 0, prompts = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const RequestOutcome& outcome = result.requests[i];
    ASSERT_EQ(outcome.end, End::kFinished) << i;
    EXPECT_EQ(outcome.output_tokens, requests[i].output_len);
    EXPECT_LE(outcome.due, outcome.admitted);
    EXPECT_LT(outcome.admitted, outcome.first_token);
    EXPECT_LE(outcome.first_token, outcome.last_token);
    EXPECT_LT(outcome.cached_tokens, outcome.prompt_tokens);
    known += requests[i].total_len() - 1;  // The last token is never computed.
    outputs += requests[i].output_len;
    prompts += requests[i].prompt_len();
  }
  const Counters& counters = result.counters;
  EXPECT_EQ(counters.prefix_query_tokens, prompts);
  if (GetParam() == SystemKind::kStatic) {
    // Members that have finished are computed on.
    EXPECT_GT(counters.prefill_tokens + counters.decode_tokens, known);
  } else {
    EXPECT_EQ(counters.prefill_tokens + counters.decode_tokens,
              known - counters.prefix_hit_tokens + counters.recomputed_tokens);
  }
  EXPECT_GT(result.useful_share, 0);
  EXPECT_LE(result.useful_share, 1);
  EXPECT_LE(result.pool_useful_share, result.useful_share);
  EXPECT_LE(result.timeline.size(), SimulationResult::kMaxTimeline);
  EXPECT_GT(result.timeline.size(), SimulationResult::kMaxTimeline / 4);
}

TEST_P(AllSystemsTest, TheSameRunGivesTheSameResult) {
  WorkloadOptions workload = AlpacaShape();
  workload.num_requests = 100;
  workload.request_rate = 20;
  const std::vector<Request> requests = MakeWorkload(workload);
  SimulationOptions options;
  options.num_replicas = 3;
  options.routing = Routing::kCacheAware;
  const SimulationResult a = RunSystem(SmallSystem(GetParam(), 4096, 16), requests, options);
  const SimulationResult b = RunSystem(SmallSystem(GetParam(), 4096, 16), requests, options);
  EXPECT_EQ(a.counters, b.counters);
  EXPECT_EQ(a.duration, b.duration);
  EXPECT_EQ(a.useful_share, b.useful_share);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(a.requests[i].first_token, b.requests[i].first_token);
    EXPECT_EQ(a.requests[i].last_token, b.requests[i].last_token);
    EXPECT_EQ(a.requests[i].replica, b.requests[i].replica);
  }
}

INSTANTIATE_TEST_SUITE_P(Systems, AllSystemsTest,
                         ::testing::Values(SystemKind::kQuire, SystemKind::kVllm,
                                           SystemKind::kOrcaOracle, SystemKind::kOrcaPow2,
                                           SystemKind::kOrcaMax, SystemKind::kStatic),
                         [](const auto& test) {
                           std::string name(SystemName(test.param));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace quire::simulator
