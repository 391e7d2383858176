// Many requests on few blocks: preemption, fairness between prefill and decode, and the counters
// that tell of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/synchronization/notification.h"
#include "base/philox.h"
#include "engine/engine.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {
namespace {

using fakes::Answer;
using ::testing::SizeIs;
using Ids = std::vector<TokenId>;
using Streams = std::vector<std::shared_ptr<TokenStream>>;

// Holds the engine in a step of a small request of its own (one prompt token, one output token)
// until all of `requests` wait, so that what happens then does not depend on timing; waits for
// their ends.
std::vector<Answer> RunTogether(Harness& harness, const std::vector<GenerationRequest>& requests) {
  Streams streams;
  {
    StepGate gate(*harness.model);
    harness.Submit(Greedy({299}, 1));
    gate.WaitUntilHeld();
    for (const GenerationRequest& request : requests) streams.push_back(harness.Submit(request));
  }
  std::vector<Answer> answers;
  for (const auto& stream : streams) answers.push_back(harness.Wait(stream));
  return answers;
}

// The number of the step that made each token of branch 0, by watching every step's batch.
// Requests are told apart by their first prompt token.
class StepLog {
 public:
  // The first step stands still until `start`, if given, is notified.
  explicit StepLog(fakes::FakeModelControl& model, absl::Notification* start = nullptr) {
    model.SetOnStep([log = log_, start](const kernels::BatchView& batch) {
      if (start != nullptr) start->WaitForNotification();
      absl::MutexLock lock(&log->mutex);
      ++log->step;
      for (std::int32_t s = 0; s < batch.num_sequences(); ++s) {
        const auto i = static_cast<std::size_t>(s);
        const std::int32_t first_block =
            batch.block_ids[static_cast<std::size_t>(batch.block_indptr[i])];
        const std::int32_t first_row = batch.q_indptr[i], end_row = batch.q_indptr[i + 1];
        if (batch.positions[static_cast<std::size_t>(first_row)] == 0) {
          log->owner_of_block[first_block] = batch.token_ids[static_cast<std::size_t>(first_row)];
        }
        const bool samples =
            std::binary_search(batch.logits_rows.begin(), batch.logits_rows.end(), end_row - 1);
        if (samples) log->token_steps[log->owner_of_block[first_block]].push_back(log->step);
      }
      return absl::OkStatus();
    });
  }

  std::vector<int> StepsOf(TokenId first_prompt_token) const {
    absl::MutexLock lock(&log_->mutex);
    return log_->token_steps[first_prompt_token];
  }

 private:
  struct Log {
    absl::Mutex mutex;
    int step = 0;
    std::map<std::int32_t, TokenId> owner_of_block;
    std::map<TokenId, std::vector<int>> token_steps;
  };
  std::shared_ptr<Log> log_ = std::make_shared<Log>();
};

int LongestGap(const std::vector<int>& steps) {
  int gap = 0;
  for (std::size_t i = 1; i < steps.size(); ++i) gap = std::max(gap, steps[i] - steps[i - 1]);
  return gap;
}

// A prompt that starts with `tag`, so that a StepLog knows it.
Ids Tagged(TokenId tag, std::size_t length) {
  Ids prompt = Prompt(length, static_cast<std::uint64_t>(tag) + 1000);
  prompt[0] = tag;
  return prompt;
}

TEST(EnginePressure, C22_MoreAdmittedPromptsThanBlocksAllFinish) {
  HarnessOptions options;
  options.model.block_size = 64;
  options.model.num_blocks = 4;
  options.engine.scheduler.max_num_seqs = 8;
  options.engine.scheduler.max_num_batched_tokens = 1024;
  Harness harness(options);
  std::vector<GenerationRequest> requests;
  for (std::uint64_t i = 0; i < 8; ++i) requests.push_back(Greedy(Prompt(64, i), 16));
  const std::vector<Answer> answers = RunTogether(harness, requests);
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(answers[i].branches.at(0).token_ids, harness.Expected(Prompt(64, i), 16));
  }
  harness.ExpectIdle();
}

class CacheOnOff : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(PrefixCache, CacheOnOff, ::testing::Bool());

TEST_P(CacheOnOff, C24_NoPreemptionCascade) {
  HarnessOptions options;
  options.model.num_blocks = 20;
  options.engine.enable_prefix_caching = GetParam();
  Harness harness(options);
  std::vector<GenerationRequest> requests;
  for (std::uint64_t i = 0; i < 10; ++i) requests.push_back(Greedy(Prompt(60, i), 100));
  const std::vector<Answer> answers = RunTogether(harness, requests);
  std::int64_t preemptions = 0;
  for (std::uint64_t i = 0; i < 10; ++i) {
    const Answer::Branch& branch = answers[i].branches.at(0);
    EXPECT_EQ(branch.token_ids, harness.Expected(Prompt(60, i), 100));
    EXPECT_LT(branch.finished->timings.num_preemptions, 3);
    preemptions += branch.finished->timings.num_preemptions;
  }
  EXPECT_EQ(answers[0].branches.at(0).finished->timings.num_preemptions, 0)
      << "the oldest is never the victim of a younger one";
  EXPECT_GT(preemptions, 0) << "the case must preempt at all";
  EXPECT_EQ(harness.ExpectIdle()->scheduler.num_preemptions, preemptions);
}

TEST(EnginePressure, C23_OnePreemptionStallsNobodyElse) {
  HarnessOptions options;
  options.model.num_blocks = 24;
  options.engine.scheduler.max_prefill_tokens = 32;
  Harness harness(options);
  StepLog log(*harness.model);
  Streams decoders;
  for (TokenId tag = 0; tag < 4; ++tag) {
    decoders.push_back(harness.Submit(Greedy(Tagged(tag, 20), 100)));
  }
  for (const auto& stream : decoders) harness.sink.WaitForTokens(stream, 2);
  const auto prefill = harness.Submit(Greedy(Tagged(9, 200), 30));
  EXPECT_EQ(harness.Wait(prefill).branches.at(0).token_ids, harness.Expected(Tagged(9, 200), 30));
  int preempted = 0;
  for (TokenId tag = 0; tag < 4; ++tag) {
    const Answer answer = harness.Wait(decoders[static_cast<std::size_t>(tag)]);
    EXPECT_EQ(answer.branches.at(0).token_ids, harness.Expected(Tagged(tag, 20), 100));
    if (answer.branches.at(0).finished->timings.num_preemptions > 0) {
      ++preempted;
    } else {
      EXPECT_LE(LongestGap(log.StepsOf(tag)), 3) << "stream " << tag;
    }
  }
  EXPECT_LE(preempted, 3);
  harness.ExpectIdle();
}

TEST(EnginePressure, C25_ALongPromptTakesNoStepFromADecoder) {
  HarnessOptions options;
  options.model.num_blocks = 128;
  options.engine.scheduler.max_prefill_tokens = 64;
  Harness harness(options);
  StepLog log(*harness.model);
  const auto decoder = harness.Submit(Greedy(Tagged(1, 10), 200));
  harness.sink.WaitForTokens(decoder, 20);
  const auto prompt = harness.Submit(Greedy(Tagged(2, 900), 2));
  EXPECT_TRUE(harness.Wait(prompt).terminal->ok());
  harness.Wait(decoder);
  EXPECT_EQ(LongestGap(log.StepsOf(1)), 1);
}

TEST(EnginePressure, C26_ANewRequestIsNotKeptOutByRunningOnes) {
  HarnessOptions options;
  options.model.num_blocks = 256;
  options.engine.scheduler.max_num_batched_tokens = 64;
  options.engine.scheduler.max_prefill_tokens = 32;
  Harness harness(options);
  StepLog log(*harness.model);
  Streams others;
  for (TokenId tag = 0; tag < 8; ++tag) {
    others.push_back(harness.Submit(Greedy(Tagged(tag, 10), 300)));
  }
  others.push_back(harness.Submit(Greedy(Tagged(20, 900), 2)));
  harness.sink.WaitForTokens(others[7], 2);
  const auto before = static_cast<int>(harness.model->num_steps());
  const auto newcomer = harness.Submit(Greedy(Tagged(30, 5), 2));
  harness.Wait(newcomer);
  // The prompt of 900 tokens computes at most 32 a step: 29 steps at the very most.
  EXPECT_LE(log.StepsOf(30).front() - before, 32);
  for (const auto& stream : others) harness.engine->Abort(stream, absl::CancelledError(""));
  for (const auto& stream : others) harness.Wait(stream);
  harness.ExpectIdle();
}

TEST(EnginePressure, C28_APreemptedRequestResumesBeforeLaterOnes) {
  HarnessOptions options;
  options.model.num_blocks = 8;
  options.engine.scheduler.max_num_seqs = 2;
  Harness harness(options);
  absl::Notification start;
  StepLog log(*harness.model, &start);
  const Ids r0 = Tagged(0, 50), r1 = Tagged(1, 40), r2 = Tagged(2, 40), r3 = Tagged(3, 40);
  Streams streams;
  for (const Ids& prompt : {r0, r1, r2, r3}) streams.push_back(harness.Submit(Greedy(prompt, 60)));
  start.Notify();
  std::vector<Answer> answers;
  for (const auto& stream : streams) answers.push_back(harness.Wait(stream));
  EXPECT_GT(answers[1].branches.at(0).finished->timings.num_preemptions, 0);
  EXPECT_LT(log.StepsOf(1).back(), log.StepsOf(2).back());
  EXPECT_LT(log.StepsOf(2).front(), log.StepsOf(3).front() + 1);
  // While r1 was preempted, neither r2 nor r3 made a token.
  const std::vector<int> steps = log.StepsOf(1);
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i] - steps[i - 1] == 1) continue;
    for (const TokenId later : {2, 3}) {
      for (const int step : log.StepsOf(later)) {
        EXPECT_FALSE(step > steps[i - 1] && step < steps[i]) << "r" << later << " passed r1";
      }
    }
  }
}

// Victims of every length, so that preemption falls on the first output token, on later ones, and
// on the same request more than once.
TEST_P(CacheOnOff, C29_APreemptedRequestSendsEachTokenOnce) {
  std::int32_t most = 0;
  int preempted_runs = 0;
  for (std::size_t length = 17; length <= 33; ++length) {
    HarnessOptions options;
    options.model.num_blocks = 9;
    options.engine.enable_prefix_caching = GetParam();
    options.engine.scheduler.watermark = 0;
    Harness harness(options);
    std::vector<GenerationRequest> requests = {
        Greedy(Prompt(40, 1), 60), Greedy(Prompt(length, 2), 50), Greedy(Prompt(length, 3), 50)};
    const std::vector<Answer> answers = RunTogether(harness, requests);
    EXPECT_EQ(answers[0].branches.at(0).token_ids, harness.Expected(Prompt(40, 1), 60));
    for (std::uint64_t i = 1; i < 3; ++i) {
      const Answer::Branch& branch = answers[i].branches.at(0);
      EXPECT_EQ(branch.token_ids, harness.Expected(Prompt(length, i + 1), 50));
      most = std::max(most, branch.finished->timings.num_preemptions);
      preempted_runs += branch.finished->timings.num_preemptions > 0 ? 1 : 0;
    }
    harness.ExpectIdle();
  }
  EXPECT_GT(preempted_runs, 10);
  EXPECT_GE(most, 2) << "no request was preempted twice";
}

TEST(EnginePressure, C15_AGroupSurvivesPreemptionAfterABranchEnded) {
  HarnessOptions options;
  options.model.num_blocks = 9;
  Harness harness(options);
  GenerationRequest group = Sampled(Prompt(17), 60, 7);
  group.sampling.n = 3;
  for (TokenId id = 0; id < 8; ++id) group.sampling.stop_token_ids.push_back(id);
  Answer alone;
  {
    Harness roomy;
    alone = roomy.Run(group);
  }
  const std::vector<Answer> answers = RunTogether(harness, {Greedy(Prompt(40, 2), 60), group});
  std::int32_t preemptions = 0;
  for (std::int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[1].branches.at(i).token_ids, alone.branches.at(i).token_ids);
    preemptions += answers[1].branches.at(i).finished->timings.num_preemptions;
  }
  EXPECT_GT(preemptions, 0) << "the case must preempt at all";
  harness.ExpectIdle();
}

TEST(EnginePressure, ARequestThatOutgrowsThePoolEndsWithKvCapacity) {
  HarnessOptions options;
  options.model.num_blocks = 4;
  Harness harness(options);
  GenerationRequest request = Greedy(Prompt(30), 500);
  request.sampling.stop = {"never"};
  const Answer answer = harness.Run(request);
  ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal;
  const Finished& finished = *answer.branches.at(0).finished;
  EXPECT_EQ(finished.reason, FinishReason::kLength);
  EXPECT_EQ(finished.detail, "kv_capacity");
  // 64 slots hold the prompt and 34 tokens; the next one is made from them and not stored.
  EXPECT_EQ(finished.completion_tokens, 35);
  EXPECT_EQ(answer.branches.at(0).token_ids, harness.Expected(Prompt(30), 35));
  EXPECT_EQ(finished.timings.num_blocks, 4);
  EXPECT_EQ(harness.ExpectIdle()->finished_length, 1);
}

TEST(EnginePressure, C19_NoTextOfOneRequestTurnsUpInAnother) {
  constexpr std::uint64_t kSeed = 20260101;
  SCOPED_TRACE(kSeed);
  HarnessOptions options;
  options.model.num_blocks = 40;
  options.engine.scheduler.max_num_batched_tokens = 128;
  Harness harness(options);
  std::uint64_t draws = 0;
  const auto draw = [&draws](std::uint64_t below) {
    return static_cast<std::uint64_t>(PhiloxUniform(kSeed, 0, draws++) *
                                      static_cast<double>(below));
  };
  for (int round = 0; round < 500; ++round) {
    Streams streams;
    std::vector<Ids> prompts;
    for (TokenId i = 0; i < 16; ++i) {
      Ids prompt = Prompt(1 + draw(200), draw(1000));
      prompt[draw(prompt.size())] = 260 + i;  // Its private marker.
      prompts.push_back(prompt);
      streams.push_back(harness.Submit(Greedy(prompt, 8)));
    }
    for (const auto& stream : streams) {
      if (draw(10) < 3) harness.engine->Abort(stream, absl::CancelledError(""));
    }
    for (std::size_t i = 0; i < 16; ++i) {
      const Answer answer = harness.Wait(streams[i]);
      if (!answer.terminal->ok()) continue;
      ASSERT_EQ(answer.branches.at(0).token_ids, harness.Expected(prompts[i], 8))
          << "round " << round << ", request " << i;
    }
  }
  harness.ExpectIdle();
}

// --- Counters --------------------------------------------------------------------------------

TEST(EnginePressure, C103_HitsAreCountedOncePerAdmission) {
  HarnessOptions options;
  options.model.num_blocks = 20;
  Harness harness(options);
  harness.Run(Greedy(Prompt(64), 1));
  const auto warm = harness.ExpectIdle();
  EXPECT_EQ(warm->scheduler.prefix_query_tokens, 64);
  EXPECT_EQ(warm->scheduler.prefix_hit_tokens, 0);

  Ids waiting = Prompt(64);  // Its prefix is cached, but it needs 15 blocks in all.
  for (const TokenId id : Prompt(170, 5)) waiting.push_back(id);
  StepGate gate(*harness.model);
  const auto holder = harness.Submit(Greedy(Prompt(90, 9), 101));
  gate.WaitUntilHeld();
  const auto waiter = harness.Submit(Greedy(waiting, 2));
  gate.Open();
  EXPECT_EQ(harness.Wait(holder).branches.at(0).finished->timings.num_preemptions, 0);
  EXPECT_TRUE(harness.Wait(waiter).terminal->ok());
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->scheduler.prefix_query_tokens, 64 + 90 + 234);
  EXPECT_LE(stats->scheduler.prefix_hit_tokens, 64);
}

TEST(EnginePressure, C103_PreemptionIsNoPrefixHit) {
  HarnessOptions options;
  options.model.num_blocks = 20;
  Harness harness(options);
  std::vector<GenerationRequest> requests;
  for (std::uint64_t i = 0; i < 10; ++i) requests.push_back(Greedy(Prompt(60, i), 100));
  RunTogether(harness, requests);
  const auto stats = harness.ExpectIdle();
  EXPECT_GT(stats->scheduler.num_preemptions, 0);
  EXPECT_EQ(stats->scheduler.prefix_hit_tokens, 0);
  EXPECT_EQ(stats->cached_prompt_tokens, 0);
}

TEST(EnginePressure, C104_PreemptionCountsNothingTwice) {
  HarnessOptions options;
  options.model.num_blocks = 16;
  Harness harness(options);
  std::vector<GenerationRequest> requests;
  for (std::uint64_t i = 0; i < 10; ++i) requests.push_back(Greedy(Prompt(60, i), 50));
  RunTogether(harness, requests);
  const auto stats = harness.ExpectIdle();
  EXPECT_GT(stats->scheduler.num_preemptions, 0);
  // One request and one token more than these: RunTogether's own.
  EXPECT_EQ(stats->generation_tokens, 500 + 1);
  EXPECT_EQ(stats->prompt_tokens, 600 + 1);
  EXPECT_EQ(stats->time_to_first_token.count, 10 + 1);
  EXPECT_EQ(stats->inter_token_latency.count, 490);
  EXPECT_EQ(stats->e2e_latency.count, 10 + 1);
  EXPECT_EQ(stats->queue_time.count, 10 + 1);
}

TEST(EnginePressure, C105_HistogramsAgreeWithTheClientsClocks) {
  HarnessOptions options;
  options.engine.scheduler.max_num_seqs = 4;
  Harness harness(options);
  std::vector<GenerationRequest> requests;
  for (std::uint64_t i = 0; i < 20; ++i) requests.push_back(Greedy(Prompt(10, i), 5));
  harness.model->SetOnStep([&harness](const kernels::BatchView&) {
    harness.clock.Advance(absl::Milliseconds(50));
    return absl::OkStatus();
  });
  double ttft = 0, decode = 0;
  Streams streams;
  for (const GenerationRequest& request : requests) streams.push_back(harness.Submit(request));
  for (const auto& stream : streams) {
    const Answer answer = harness.Wait(stream);
    const Timings& timings = answer.branches.at(0).finished->timings;
    EXPECT_EQ(timings.prefill, absl::Milliseconds(50));
    EXPECT_EQ(timings.decode, absl::Milliseconds(200));
    EXPECT_EQ(timings.time_to_first_token, timings.queue + timings.prefill);
    EXPECT_EQ(answer.accepted->queue_time, timings.queue);
    ttft += absl::ToDoubleSeconds(timings.time_to_first_token);
    decode += absl::ToDoubleSeconds(timings.decode);
  }
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->time_to_first_token.count, 20);
  EXPECT_NEAR(stats->time_to_first_token.sum, ttft, 1e-9);
  EXPECT_NEAR(stats->decode_time.sum, decode, 1e-9);
  EXPECT_NEAR(stats->e2e_latency.sum, ttft + decode, 1e-9);
  EXPECT_EQ(stats->inter_token_latency.count, 80);
  EXPECT_NEAR(stats->inter_token_latency.sum, 4.0, 1e-9);
  EXPECT_EQ(stats->step_time.count, harness.model->num_steps());
  EXPECT_NEAR(stats->step_time.sum, 0.05 * static_cast<double>(harness.model->num_steps()), 1e-9);
  EXPECT_NEAR(stats->iteration_tokens.sum,
              static_cast<double>(harness.model->num_computed_tokens()), 0);
  std::int64_t in_buckets = 0;
  for (const std::int64_t count : stats->time_to_first_token.counts) in_buckets += count;
  EXPECT_EQ(in_buckets, 20);
  EXPECT_EQ(stats->time_to_first_token.counts[0], 0) << "no first token comes in no time";
}

TEST(EnginePressure, C107_EveryRequestIsCountedOnce) {
  HarnessOptions options;
  options.model.num_blocks = 20;
  options.engine.max_queued_requests = 30;
  Harness harness(options);
  StepGate gate(*harness.model);
  Streams streams;
  const auto first = harness.Submit(Greedy(Prompt(60, 77), 100));
  gate.WaitUntilHeld();
  for (std::uint64_t i = 0; i < 30; ++i) {
    GenerationRequest request = Greedy(Prompt(60, i), i < 10 ? 100 : 3);
    if (i % 5 == 4) request.deadline = harness.clock.Now();
    streams.push_back(harness.Submit(request));
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(harness.engine->Submit(Greedy(Prompt(60), 1)).ok());
  }
  for (std::size_t i = 0; i < 30; i += 5) {
    harness.engine->Abort(streams[i], absl::CancelledError(""));
  }
  gate.Open();
  harness.Wait(first);
  for (const auto& stream : streams) harness.Wait(stream);
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->requests_received, 35);
  EXPECT_EQ(stats->refused, 4);
  EXPECT_EQ(stats->cancelled, 6);
  EXPECT_EQ(stats->deadline_exceeded, 6);
  EXPECT_EQ(stats->finished_length, 19);
  EXPECT_GT(stats->scheduler.num_preemptions, 0);
}

// Reads the newest snapshot at every delivery.
TEST(EnginePressure, C102_C11_BlocksAddUpInEverySnapshot) {
  struct Watcher final : OutputSink {
    Engine* engine = nullptr;
    fakes::CollectingSink collected;
    std::int64_t num_snapshots = 0;
    void OnOutput(std::vector<std::shared_ptr<TokenStream>> streams) override {
      const std::shared_ptr<const EngineStats> stats = engine->stats();
      ExpectConsistent(*stats);
      EXPECT_LE(stats->blocks.active, stats->blocks.capacity);
      ++num_snapshots;
      collected.OnOutput(std::move(streams));
    }
  };
  HarnessOptions options;
  options.model.num_blocks = 30;
  Watcher watcher;
  auto engine = *Engine::Create(options.engine,
                                std::make_unique<fakes::FakeModelRunner>(
                                    options.model, std::make_shared<fakes::FakeModelControl>()),
                                nullptr, nullptr, options.traits, &watcher);
  watcher.engine = engine.get();
  Streams streams;
  for (std::uint64_t i = 0; i < 50; ++i) {
    Ids prompt = Prompt(64);
    for (const TokenId id : Prompt(1 + i, i + 10)) prompt.push_back(id);
    streams.push_back(*engine->Submit(Greedy(prompt, 20)));
  }
  for (const auto& stream : streams) watcher.collected.Wait(stream);
  engine->Drain(absl::Minutes(1));
  const auto idle = engine->stats();
  EXPECT_EQ(idle->blocks.active, 0);
  EXPECT_EQ(idle->blocks.cached + idle->blocks.free, 30);
  EXPECT_GT(idle->scheduler.prefix_hit_tokens, 0);
  EXPECT_TRUE(idle->healthy);
  EXPECT_GE(watcher.num_snapshots, 20);
}

}  // namespace
}  // namespace quire::engine
