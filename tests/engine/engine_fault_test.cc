// Failed steps, NaN logits, an engine that cannot go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "engine/engine.h"
#include "engine/engine_loop.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {
namespace {

using fakes::Answer;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// Fails the `nth` step from now, by an error or an exception.
void FailStep(Harness& harness, int nth, bool throws) {
  auto left = std::make_shared<std::atomic<int>>(nth);
  harness.model->SetOnStep([left, throws](const kernels::BatchView&) -> absl::Status {
    if (--*left != 0) return absl::OkStatus();
    if (throws) throw std::runtime_error("secret detail");
    return absl::UnknownError("secret detail");
  });
}

class EngineFaultTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(ErrorOrException, EngineFaultTest, ::testing::Bool());

TEST_P(EngineFaultTest, C96_AFailedStepEndsItsRequestsWithAnErrorId) {
  Harness harness;
  FailStep(harness, 3, GetParam());
  const auto a = harness.Submit(Greedy(Prompt(20), 50));
  const Answer failed = harness.Wait(a);
  EXPECT_EQ(failed.terminal->code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.terminal->message()),
              MatchesRegex("the step failed \\(error id [0-9a-f]+-1\\)"));
  EXPECT_THAT(std::string(failed.terminal->message()), Not(HasSubstr("secret")));
  EXPECT_EQ(failed.branches.at(0).token_ids.size(), 2U) << "what was sent before stays sent";

  EXPECT_EQ(harness.Run(Greedy(Prompt(20), 10)).branches.at(0).token_ids,
            harness.Expected(Prompt(20), 10));
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->failed, 1);
  EXPECT_TRUE(stats->healthy) << "one failure is no end";
}

TEST_P(EngineFaultTest, AFailedForkStepEndsTheRequestOnce) {
  Harness harness;
  FailStep(harness, 1, GetParam());
  GenerationRequest request = Sampled(Prompt(20), 10, 3);
  request.sampling.n = 4;
  EXPECT_EQ(harness.Run(request).terminal->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(harness.ExpectIdle()->failed, 1);
}

TEST(EngineFault, AFailedStepLeavesWaitingRequestsAlone) {
  HarnessOptions options;
  options.engine.scheduler.max_num_seqs = 1;
  Harness harness(options);
  FailStep(harness, 1, false);
  const auto first = harness.Submit(Greedy(Prompt(20), 5));
  const auto second = harness.Submit(Greedy(Prompt(20, 2), 5));
  EXPECT_EQ(harness.Wait(first).terminal->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(harness.Wait(second).branches.at(0).token_ids, harness.Expected(Prompt(20, 2), 5));
}

TEST(EngineFault, C60_NanLogitsEndOnlyTheirRequest) {
  Harness harness;
  harness.model->SetPoison(255);
  std::vector<TokenId> poisoned = Prompt(20, 5);
  poisoned[7] = 255;
  StepGate gate(*harness.model);
  const auto b = harness.Submit(Greedy(Prompt(20), 12));
  gate.WaitUntilHeld();
  const auto a = harness.Submit(Greedy(poisoned, 12));  // Shares its steps with b.
  GenerationRequest scored = Greedy(poisoned, 12);
  scored.sampling.prompt_logprobs = 0;
  const auto c = harness.Submit(scored);
  GenerationRequest branches = Sampled(poisoned, 12, 1);
  branches.sampling.n = 3;
  const auto d = harness.Submit(branches);
  gate.Open();
  for (const auto& stream : {a, c, d}) {
    const Answer answer = harness.Wait(stream);
    EXPECT_EQ(answer.terminal->code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(answer.terminal->message()), HasSubstr("not a number"));
    EXPECT_TRUE(answer.branches.empty());
  }
  EXPECT_EQ(harness.Wait(b).branches.at(0).token_ids, harness.Expected(Prompt(20), 12));
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->failed, 3);
  EXPECT_TRUE(stats->healthy);
}

TEST(EngineFault, C96_AnEngineThatFailsEveryStepGivesUp) {
  Harness harness;
  harness.model->SetOnStep(
      [](const kernels::BatchView&) { return absl::InternalError("the device is gone"); });
  for (int i = 0; i < EngineLoop::kMaxFailedSteps; ++i) {
    EXPECT_EQ(harness.Run(Greedy(Prompt(5), 2)).terminal->code(), absl::StatusCode::kInternal);
  }
  const auto stats = harness.WaitFor([](const EngineStats& s) { return !s.healthy; });
  EXPECT_EQ(stats->blocks.active, 0);
  const absl::Status refused = harness.engine->Submit(Greedy(Prompt(5), 2)).status();
  EXPECT_EQ(refused, absl::UnavailableError("the engine has failed"));
  EXPECT_TRUE(harness.engine->GetBlockMap(absl::Minutes(1)).ok()) << "queries are still answered";
}

TEST(EngineFault, GivingUpEndsEveryRequestThatWaits) {
  HarnessOptions options;
  options.engine.scheduler.max_num_seqs = 1;
  Harness harness(options);
  harness.model->SetOnStep(
      [](const kernels::BatchView&) { return absl::InternalError("the device is gone"); });
  std::vector<std::shared_ptr<TokenStream>> streams;
  StepGate gate(*harness.model);
  for (std::uint64_t i = 0; i < 20; ++i) streams.push_back(harness.Submit(Greedy(Prompt(5, i), 2)));
  harness.model->SetOnStep(
      [](const kernels::BatchView&) { return absl::InternalError("the device is gone"); });
  gate.Open();
  for (const auto& stream : streams) ASSERT_TRUE(harness.Wait(stream).terminal.has_value());
  const auto stats = harness.WaitFor([](const EngineStats& s) { return !s.healthy; });
  EXPECT_EQ(stats->blocks.active, 0);
  ExpectConsistent(*stats);
}

TEST(EngineFault, FailuresApartFromEachOtherDoNotAddUp) {
  Harness harness;
  for (int i = 0; i < 2 * EngineLoop::kMaxFailedSteps; ++i) {
    FailStep(harness, 2, false);
    EXPECT_EQ(harness.Run(Greedy(Prompt(5), 4)).terminal->code(), absl::StatusCode::kInternal);
  }
  EXPECT_TRUE(harness.ExpectIdle()->healthy);
}

TEST(EngineFault, C96_TheHeartbeatStopsWhileAStepHangs) {
  Harness harness;
  StepGate gate(*harness.model);
  const auto stream = harness.Submit(Greedy(Prompt(5), 2));
  gate.WaitUntilHeld();
  const absl::Time before = harness.engine->stats()->last_step_finished;
  harness.clock.Advance(absl::Minutes(1));
  harness.engine->Poke();
  EXPECT_EQ(harness.engine->stats()->last_step_finished, before);
  EXPECT_EQ(harness.engine->GetBlockMap(absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded)
      << "queries wait with a bound";
  gate.Open();
  harness.Wait(stream);
}

TEST(EngineFault, TheHeartbeatGoesOnWhileIdle) {
  Harness harness;
  harness.clock.Advance(absl::Minutes(1));
  harness.engine->Poke();
  const absl::Time now = harness.clock.Now();
  harness.WaitFor([now](const EngineStats& s) { return s.last_step_finished == now; });
}

}  // namespace
}  // namespace quire::engine
