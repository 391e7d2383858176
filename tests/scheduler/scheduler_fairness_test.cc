// Who waits how long: preemption, starvation, overtaking, long prompts. Catalogue area (b).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/scheduler/scheduler_world.h"

namespace quire::scheduler {
namespace {

TEST(SchedulerFairness, C22_PromptsThatFillEveryBlockAllFinish) {
  World world({.num_blocks = 4, .block_size = 64}, {.max_num_seqs = 8});
  std::vector<SequenceId> ids;
  for (int i = 0; i < 8; ++i) {
    ids.push_back(world.Add({.prompt = TokenRange(64, 1000 * i), .num_outputs = 16}));
  }
  world.RunToTheEnd();
  for (const SequenceId id : ids) EXPECT_EQ(world.output(id).size(), 16u);
}

TEST(SchedulerFairness, C23_OnlyThePreemptedOneMissesSteps) {
  World world({.num_blocks = 16, .block_size = 8, .enable_prefix_caching = false},
              {.max_num_seqs = 8, .max_prefill_tokens = 16, .watermark = 0});
  std::vector<SequenceId> streams;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(world.Add({.prompt = TokenRange(8, 1000 * i), .num_outputs = 40}));
  }
  world.Steps(9);
  world.Add({.prompt = TokenRange(56, 9000), .num_outputs = 8});
  world.RunToTheEnd();
  EXPECT_GT(world.scheduler().stats().num_preemptions, 0);
  for (const SequenceId id : streams) {
    if (world.preemptions(id) == 0) {
      EXPECT_LE(world.LongestGap(id), 3) << id.value();
    }
  }
  EXPECT_EQ(world.preemptions(streams[0]), 0);
}

TEST(SchedulerFairness, C24_NoPreemptionCascade) {
  for (const bool caching : {true, false}) {
    World world({.num_blocks = 20, .enable_prefix_caching = caching}, {.max_num_seqs = 10});
    std::vector<SequenceId> ids;
    for (int i = 0; i < 10; ++i) {
      ids.push_back(world.Add({.prompt = TokenRange(60, 1000 * i), .num_outputs = 100}));
    }
    while (world.scheduler().has_work()) {
      // The oldest running request is never the victim.
      const std::vector<Scheduler::SequenceView> running = world.scheduler().RunningSequences();
      world.Step();
      if (running.empty()) continue;
      const SequenceId oldest =
          std::ranges::min_element(running, {}, &Scheduler::SequenceView::id)->id;
      EXPECT_THAT(world.plan().preempted, testing::Not(testing::Contains(oldest)));
    }
    for (const SequenceId id : ids) {
      EXPECT_TRUE(world.Finished(id));
      EXPECT_LT(world.preemptions(id), 3) << id.value() << " caching " << caching;
    }
  }
}

TEST(SchedulerFairness, C25_ALongPromptTakesNoStepFromDecodes) {
  World world({.num_blocks = 400},
              {.max_num_seqs = 8, .max_num_batched_tokens = 1024, .max_prefill_tokens = 256});
  const SequenceId stream = world.Add({.prompt = TokenRange(8), .num_outputs = 200});
  world.Steps(20);
  const SequenceId long_prompt = world.Add({.prompt = TokenRange(4000, 10'000)});
  int steps = 0;
  for (; !world.Finished(long_prompt); ++steps) {
    world.Step();
    // A step's time is bounded by the cap, so the gap between two tokens is, too.
    EXPECT_LE(world.plan().num_tokens, 256 + 1);
    EXPECT_TRUE(world.Ran(stream));
  }
  EXPECT_EQ(steps, 16);  // ceil(4000 / 256)
  EXPECT_EQ(world.LongestGap(stream), 0);
}

// The bound: with decodes and unfinished prefills of R tokens ahead of it, a newcomer's first chunk
// is computed at most ceil(R / max_prefill_tokens) + 1 steps after it arrived.
TEST(SchedulerFairness, C26_ANewcomerWaitsOnlyForThePrefillsAhead) {
  World world({.num_blocks = 600},
              {.max_num_seqs = 16, .max_num_batched_tokens = 1024, .max_prefill_tokens = 512});
  for (int i = 0; i < 8; ++i) {
    world.Add({.prompt = TokenRange(8, 1000 * i), .num_outputs = 200});
  }
  world.Steps(2);
  world.Add({.prompt = TokenRange(4000, 20'000)});
  world.Step();
  const SequenceId newcomer = world.Add({.prompt = TokenRange(5, 50'000)});
  int steps = 0;
  for (; !world.Finished(newcomer); ++steps) world.Step();
  EXPECT_LE(steps, (4000 - 512) / 512 + 1 + 1);
}

TEST(SchedulerFairness, C27_ALargeRequestIsPassedABoundedNumberOfTimes) {
  constexpr int kMaxOvertakes = 10;
  World world({.num_blocks = 8, .block_size = 64},
              {.max_num_seqs = 8, .watermark = 0, .max_overtakes = kMaxOvertakes});
  world.Add({.prompt = TokenRange(3, 50'000), .num_outputs = 55});
  world.Step();
  world.HoldBlocks(4);                                                    // Three blocks are free.
  const SequenceId big = world.Add({.prompt = TokenRange(350, 60'000)});  // 6 blocks.
  int passed = 0;
  for (int i = 0; i < 40; ++i) {
    const SequenceId small = world.Add({.prompt = TokenRange(3, 100 * i)});
    world.Step();
    passed += world.Finished(small) && !world.Finished(big) ? 1 : 0;
    if (i == 30) world.ReleaseHeldBlocks();
  }
  EXPECT_TRUE(world.Finished(big));
  EXPECT_EQ(passed, kMaxOvertakes);
  world.RunToTheEnd();
}

TEST(SchedulerFairness, C27_OneStepPassesAtMostSixteenThatDoNotFit) {
  World world({.num_blocks = 32, .block_size = 4}, {.max_num_seqs = 32, .watermark = 0});
  world.Add({.prompt = TokenRange(79, 50'000), .num_outputs = 3});
  world.Step();
  for (int i = 0; i < 16; ++i) world.Add({.prompt = TokenRange(60, 1000 * i)});
  const SequenceId small = world.Add({.prompt = TokenRange(3, 90'000)});
  world.Step();
  EXPECT_FALSE(world.Ran(small));
  world.RunToTheEnd();
  EXPECT_TRUE(world.Finished(small));
}

// However requests of all sizes come: no waiting one sees more than max_overtakes later ones start
// before it.
TEST(SchedulerFairness, C27_NobodyIsOvertakenMoreOftenThanAllowed) {
  std::int64_t overtakes = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto uniform = [&](int low, int high) {
      return std::uniform_int_distribution(low, high)(random);
    };
    const int max_overtakes = uniform(0, 5);
    World world({.num_blocks = 16, .block_size = 4},
                {.max_num_seqs = 8, .watermark = 0.1, .max_overtakes = max_overtakes});
    std::map<SequenceId, int> overtaken;  // Of those that wait.
    for (int step = 0; step < 200 || world.scheduler().has_work(); ++step) {
      ASSERT_LT(step, 10'000);
      for (int i = uniform(0, 4); step < 200 && i > 0; --i) {
        const int length = uniform(0, 3) == 0 ? uniform(20, 60) : uniform(1, 6);
        overtaken[world.Add(
            {.prompt =
                 TokenRange(length, 1000 * static_cast<int>(overtaken.size()) + 100'000 * step),
             .num_outputs = uniform(1, 3)})] = 0;
      }
      world.Step();
      for (const Admission& admission : world.plan().admitted) {
        overtaken.erase(admission.id);
        for (auto& [id, times] : overtaken) {
          if (id < admission.id) {
            ++overtakes;
            ASSERT_LE(++times, max_overtakes) << id.value();
          }
        }
      }
    }
    EXPECT_TRUE(overtaken.empty());
  }
  EXPECT_GT(overtakes, 1000);
}

TEST(SchedulerFairness, C28_APreemptedRequestResumesBeforeLaterArrivals) {
  World world({.num_blocks = 5, .block_size = 4}, {.max_num_seqs = 3, .watermark = 0});
  world.Add({.prompt = TokenRange(7), .num_outputs = 7});
  const SequenceId r1 = world.Add({.prompt = TokenRange(7, 100), .num_outputs = 3});
  world.Steps(2);
  const SequenceId r2 = world.Add({.prompt = TokenRange(3, 200)});
  const SequenceId r3 = world.Add({.prompt = TokenRange(3, 300)});
  world.Step();
  ASSERT_EQ(world.preemptions(r1), 1);
  while (!world.Ran(r1)) {
    EXPECT_FALSE(world.Ran(r2));
    EXPECT_FALSE(world.Ran(r3));
    world.Step();
  }
  world.RunToTheEnd();
}

// The world compares all tokens with those of a solo run after each step.
TEST(SchedulerFairness, C29_PreemptionAtAnyTokenAndTwiceInARowYieldsTheSameTokens) {
  for (const int tokens_before : {1, 2, 3, 10}) {
    World world({.num_blocks = 40, .block_size = 4}, {.max_num_seqs = 4, .watermark = 0});
    world.Add({.prompt = TokenRange(3), .num_outputs = 60});
    const SequenceId victim = world.Add({.prompt = TokenRange(5, 100), .num_outputs = 30});
    world.Steps(tokens_before);
    for (int preemptions = 1; preemptions <= 2; ++preemptions) {
      world.HoldBlocks(world.blocks().num_available());
      for (int i = 0; i < 4 && world.preemptions(victim) < preemptions; ++i) world.Step();
      ASSERT_EQ(world.preemptions(victim), preemptions);
      world.ReleaseHeldBlocks();
      world.Step();
      ASSERT_TRUE(world.Ran(victim));
    }
    world.RunToTheEnd();
    EXPECT_EQ(world.output(victim), fakes::ExpectedOutput(TokenRange(5, 100), 0, 30));
  }
}

TEST(SchedulerFairness, C15_AGroupPreemptedAfterOneBranchEndedKeepsItsTokens) {
  World world({.num_blocks = 7, .block_size = 16}, {.max_num_seqs = 4, .watermark = 0});
  const SequenceId first =
      world.Add({.prompt = TokenRange(17), .num_outputs = 60, .num_branches = 3});
  const SequenceId second{first.value() + 1}, third{first.value() + 2};
  world.engine().SetJob(third, {.branch = 2, .num_output_tokens = 5});
  world.RunToTheEnd();
  EXPECT_GT(world.scheduler().stats().num_preemptions, 0);
  EXPECT_EQ(world.blocks().stats().copies_on_write, 2);  // Once per writer but the last.
  EXPECT_EQ(world.output(first), fakes::ExpectedOutput(TokenRange(17), 0, 60));
  EXPECT_EQ(world.output(second), fakes::ExpectedOutput(TokenRange(17), 1, 60));
  EXPECT_EQ(world.output(third), fakes::ExpectedOutput(TokenRange(17), 2, 5));
}

TEST(SchedulerFairness, C107_PreemptionsAreCounted) {
  World world({.num_blocks = 8, .block_size = 4}, {.max_num_seqs = 4});
  for (int i = 0; i < 4; ++i) world.Add({.prompt = TokenRange(6, 1000 * i), .num_outputs = 12});
  world.RunToTheEnd();
  int counted = 0;
  for (std::uint64_t id = 1; id <= 4; ++id) counted += world.preemptions(SequenceId{id});
  EXPECT_GT(counted, 0);
  EXPECT_EQ(world.scheduler().stats().num_preemptions, counted);
}

TEST(SchedulerFairness, TheTokenBudgetIsNeverExceededAndPrefillsShareWhatDecodesLeave) {
  World world({.num_blocks = 64},
              {.max_num_seqs = 4, .max_num_batched_tokens = 10, .max_prefill_tokens = 100});
  for (int i = 0; i < 4; ++i) world.Add({.prompt = TokenRange(25, 1000 * i), .num_outputs = 5});
  while (world.scheduler().has_work()) {
    world.Step();
    EXPECT_LE(world.plan().num_tokens, 10);
  }
}

TEST(SchedulerFairness, ABudgetOfOneTokenPerSequenceStillFinishesEverything) {
  World world({.num_blocks = 64},
              {.max_num_seqs = 4, .max_num_batched_tokens = 4, .max_prefill_tokens = 1});
  std::vector<SequenceId> ids;
  for (int i = 0; i < 6; ++i) {
    ids.push_back(world.Add({.prompt = TokenRange(20, 1000 * i), .num_outputs = 30}));
  }
  world.RunToTheEnd();
  for (const SequenceId id : ids) EXPECT_TRUE(world.Finished(id));
}

}  // namespace
}  // namespace quire::scheduler
