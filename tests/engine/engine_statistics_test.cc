// Where prompt tokens came from, why they were computed, and what waits for what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "engine/engine.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {
namespace {

using fakes::Answer;
using Ids = std::vector<TokenId>;

TEST(EngineStatistics, C103_EveryPromptTokenIsAHitOrAMissWithAReason) {
  Harness harness;
  const auto run = [&](GenerationRequest request) {
    EXPECT_TRUE(harness.Run(std::move(request)).terminal->ok());
    return harness.ExpectIdle()->scheduler;
  };
  auto s = run(Greedy(Prompt(40), 2));
  EXPECT_EQ(s.prefix_misses.never_seen, 32);
  EXPECT_EQ(s.prefix_misses.partial_block, 8);

  s = run(Greedy(Prompt(40), 2));
  EXPECT_EQ(s.prefix_hit_tokens, 32);
  EXPECT_EQ(s.prefix_misses.never_seen, 32);
  EXPECT_EQ(s.prefix_misses.partial_block, 16);

  GenerationRequest salted = Greedy(Prompt(40), 2);
  salted.cache_salt = "tenant";
  s = run(salted);
  EXPECT_EQ(s.prefix_misses.other_salt, 32);
  EXPECT_EQ(s.prefix_misses.partial_block, 24);

  GenerationRequest bypass = Greedy(Prompt(40), 2);
  bypass.bypass_prefix_cache = true;
  s = run(bypass);
  EXPECT_EQ(s.prefix_misses.bypassed, 40);
  EXPECT_EQ(s.prefix_misses.partial_block, 24);

  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(s.prefix_hit_tokens + s.prefix_misses.total(), stats->prompt_tokens);
  EXPECT_EQ(stats->prompt_tokens, 160);
}

TEST(EngineStatistics, WhatWasEvictedIsMissedAsSuch) {
  HarnessOptions options;
  options.model.num_blocks = 8;
  Harness harness(options);
  harness.Run(Greedy(Prompt(48, 1), 2));
  harness.Run(Greedy(Prompt(110, 2), 2));  // Seven of eight blocks.
  const auto before = harness.ExpectIdle();
  EXPECT_EQ(before->blocks.evictions, 2);
  EXPECT_EQ(before->scheduler.prefix_misses.evicted, 0);
  harness.Run(Greedy(Prompt(48, 1), 2));
  const auto after = harness.ExpectIdle();
  // Tails go first: the first block is still there, the second was evicted, and the third holds the
  // last token, which is always computed.
  EXPECT_EQ(after->scheduler.prefix_hit_tokens, 16);
  EXPECT_EQ(after->scheduler.prefix_misses.evicted, 16);
  EXPECT_EQ(
      after->scheduler.prefix_misses.partial_block - before->scheduler.prefix_misses.partial_block,
      16);
}

TEST(EngineStatistics, APrefixThatSomebodyComputesIsAHitInFlight) {
  Harness harness;
  StepGate gate(*harness.model);
  const auto first = harness.Submit(Greedy(Prompt(300), 2));  // More than a step computes.
  gate.WaitUntilHeld();
  const auto second = harness.Submit(Greedy(Prompt(300), 2));
  gate.Open();
  EXPECT_EQ(harness.Wait(first).accepted->cached_tokens, 0);
  EXPECT_EQ(harness.Wait(second).accepted->cached_tokens, 288);
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->scheduler.prefix_hit_tokens, 288);
  EXPECT_EQ(stats->scheduler.prefix_hit_tokens_in_flight, 32) << "256 were computed when it came";
  EXPECT_EQ(stats->scheduler.in_flight_waits, 1);
  EXPECT_EQ(stats->scheduler.in_flight_timeouts, 0);
  EXPECT_EQ(harness.model->num_computed_tokens(), 300 + 12 + 2);
}

TEST(EngineStatistics, ForksShareThePromptsTokens) {
  Harness harness;
  GenerationRequest request = Sampled(Prompt(40), 5, 7);
  request.sampling.n = 3;
  harness.Run(request);
  EXPECT_EQ(harness.ExpectIdle()->scheduler.fork_shared_tokens, 80);
}

TEST(EngineStatistics, WaitingRequestsSayWhatTheyWaitFor) {
  HarnessOptions options;
  options.engine.scheduler.max_num_seqs = 1;
  Harness harness(options);
  StepGate gate(*harness.model);
  const auto running = harness.Submit(Greedy(Prompt(10, 1), 20));
  gate.WaitUntilHeld();
  const auto waiting = harness.Submit(Greedy(Prompt(10, 2), 20));
  harness.clock.Advance(absl::Seconds(7));
  gate.Step();
  gate.WaitUntilHeld();
  gate.Step();
  gate.WaitUntilHeld();
  const auto stats = harness.WaitFor([](const EngineStats& s) { return s.requests_queued == 1; });
  EXPECT_EQ(stats->scheduler.waiting_because.slots, 1);
  EXPECT_EQ(stats->time - stats->scheduler.oldest_waiting_arrival, absl::Seconds(7));
  gate.Open();
  harness.Wait(running);
  harness.Wait(waiting);
  EXPECT_EQ(harness.ExpectIdle()->scheduler.waiting_because.slots, 0);
}

TEST(EngineStatistics, ThePrefillCapFollowsTheMeasuredSteps) {
  HarnessOptions options;
  options.engine.scheduler.target_itl = absl::Milliseconds(20);
  Harness harness(options);
  // A millisecond per token: twenty fit into the target, not the 128 of max_prefill_tokens. The
  // stream's third step waits for the long prompt, so that they meet.
  absl::Notification both;
  harness.model->SetOnStep([&, step = std::make_shared<int>(0)](const kernels::BatchView& batch) {
    if (++*step == 3) both.WaitForNotification();
    harness.clock.Advance(absl::Milliseconds(1) * batch.num_tokens());
    return absl::OkStatus();
  });
  EXPECT_EQ(harness.engine->stats()->scheduler.prefill_cap, 128);
  const auto stream = harness.Submit(Greedy(Prompt(4), 200));
  harness.sink.WaitForTokens(stream, 1);
  const auto prompt = harness.Submit(Greedy(Prompt(900, 2), 2));
  both.Notify();
  harness.Wait(prompt);
  const auto stats = harness.engine->stats();
  EXPECT_GE(stats->scheduler.prefill_cap, 16);
  EXPECT_LE(stats->scheduler.prefill_cap, 20);
  harness.Wait(stream);
}

}  // namespace
}  // namespace quire::engine
