// Priority classes: a more urgent request may preempt less urgent ones, never in vain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/scheduler/scheduler_world.h"

namespace quire::scheduler {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr SchedulerOptions kOptions{.max_num_seqs = 4, .policy = Policy::kPriority, .watermark = 0};

TEST(SchedulerPriority, AnUrgentRequestPreemptsALessUrgentOneForBlocks) {
  World world({.num_blocks = 8, .block_size = 4}, kOptions);
  const SequenceId low = world.Add({.prompt = TokenRange(27), .num_outputs = 3, .priority = 1});
  world.Step();
  const SequenceId urgent = world.Add({.prompt = TokenRange(7, 100)});
  world.Step();
  EXPECT_THAT(world.plan().preempted, ElementsAre(low));
  EXPECT_TRUE(world.Finished(urgent));
  EXPECT_EQ(world.scheduler().stats().num_preemptions_for_urgent, 1);
  EXPECT_EQ(world.scheduler().stats().num_preemptions, 1);
  world.RunToTheEnd();
  EXPECT_TRUE(world.Finished(low));
}

TEST(SchedulerPriority, OfOneClassNobodyPreemptsToStart) {
  for (const Policy policy : {Policy::kFcfs, Policy::kPriority}) {
    SchedulerOptions options = kOptions;
    options.policy = policy;
    World world({.num_blocks = 8, .block_size = 4}, options);
    const std::int32_t priority = policy == Policy::kFcfs ? 9 : 0;
    world.Add({.prompt = TokenRange(27), .num_outputs = 3, .priority = priority});
    world.Step();
    world.Add({.prompt = TokenRange(7, 100)});
    world.RunToTheEnd();
    EXPECT_EQ(world.scheduler().stats().num_preemptions, 0);
  }
}

// Preempting LOW gives 3 blocks; with those that are free, that is one too few.
TEST(SchedulerPriority, NobodyIsPreemptedInVain) {
  World world({.num_blocks = 8, .block_size = 4}, kOptions);
  const SequenceId high = world.Add({.prompt = TokenRange(18), .num_outputs = 9});
  const SequenceId low =
      world.Add({.prompt = TokenRange(10, 100), .num_outputs = 2, .priority = 5});
  world.Step();
  ASSERT_TRUE(world.Ran(high) && world.Ran(low));
  const SequenceId urgent = world.Add({.prompt = TokenRange(15, 200), .priority = 1});
  world.Step();
  EXPECT_THAT(world.plan().preempted, IsEmpty());
  EXPECT_TRUE(world.Finished(low));
  world.RunToTheEnd();
  EXPECT_TRUE(world.Finished(urgent));
  EXPECT_EQ(world.scheduler().stats().num_preemptions, 0);
}

TEST(SchedulerPriority, ForASlotTheLeastComputedOneOfTheLowestClassGoes) {
  World world({.num_blocks = 64}, kOptions);
  world.Add({.prompt = TokenRange(3), .num_outputs = 9, .priority = 1});
  world.Add({.prompt = TokenRange(30, 100), .num_outputs = 9, .priority = 2});
  const SequenceId least =
      world.Add({.prompt = TokenRange(20, 200), .num_outputs = 9, .priority = 2});
  world.Add({.prompt = TokenRange(40, 300), .num_outputs = 9, .priority = 2});
  world.Step();
  world.Add({.prompt = TokenRange(7, 400)});
  world.Step();
  EXPECT_THAT(world.plan().preempted, ElementsAre(least));
  world.RunToTheEnd();
}

// Three branches share the whole prompt: only all of them together give it back.
TEST(SchedulerPriority, BlocksThatVictimsShareAreCountedWhenTheLastOneGoes) {
  World world({.num_blocks = 9, .block_size = 4}, kOptions);
  world.Add({.prompt = TokenRange(24), .num_outputs = 9, .num_branches = 3, .priority = 1});
  world.Step();
  const SequenceId urgent = world.Add({.prompt = TokenRange(20, 100)});
  world.Step();
  EXPECT_EQ(world.plan().preempted.size(), 3u);
  EXPECT_TRUE(world.Ran(urgent));
  world.RunToTheEnd();
}

// What the urgent one hits in a victim's blocks is no gain: it goes on using them.
TEST(SchedulerPriority, TheHitsOfTheUrgentOneAreNoGain) {
  World world({.num_blocks = 8, .block_size = 4}, kOptions);
  const SequenceId low = world.Add({.prompt = TokenRange(24), .num_outputs = 7, .priority = 1});
  world.Step();
  // 24 tokens are hits; of the 8 more blocks that it would take, there are never enough.
  std::vector<TokenId> prompt = TokenRange(24);
  prompt.resize(31, 900);
  const SequenceId urgent = world.Add({.prompt = prompt});
  world.Step();
  // 8 blocks in all: 6 hits and 2 new ones, which are free once LOW's next block is not asked for.
  EXPECT_THAT(world.plan().preempted, ElementsAre(low));
  EXPECT_EQ(world.cached_tokens().at(urgent), 24);
  EXPECT_TRUE(world.Finished(urgent));
  world.RunToTheEnd();
}

TEST(SchedulerPriority, TheWatermarkIsKeptUnlessNobodyElseRuns) {
  SchedulerOptions options = kOptions;
  options.watermark = 0.25;
  World world({.num_blocks = 8, .block_size = 4}, options);
  const SequenceId low = world.Add({.prompt = TokenRange(20), .num_outputs = 9, .priority = 1});
  world.Step();
  // All 8 blocks: only if LOW, the only one, makes room, and then without watermark.
  const SequenceId urgent = world.Add({.prompt = TokenRange(31, 100)});
  world.Step();
  EXPECT_THAT(world.plan().preempted, ElementsAre(low));
  EXPECT_TRUE(world.Finished(urgent));
  world.RunToTheEnd();
}

// LOW yields a token each time it has come back before it can be preempted again, so it ends.
TEST(SchedulerPriority, ALessUrgentRequestGetsOnUnderAStreamOfUrgentOnes) {
  World world({.num_blocks = 8, .block_size = 4},
              {.max_num_seqs = 1, .policy = Policy::kPriority, .watermark = 0});
  const SequenceId low = world.Add({.prompt = TokenRange(9), .num_outputs = 6, .priority = 1});
  world.Step();
  for (int i = 0; i < 40 && !world.Finished(low); ++i) {
    // It comes back in every second step: the urgent one takes one step.
    if (world.Ran(low)) world.Add({.prompt = TokenRange(5, 100 * (i + 1))});
    world.Step();
  }
  EXPECT_TRUE(world.Finished(low));
  EXPECT_EQ(world.preemptions(low), 5);
  world.RunToTheEnd();
}

// Whatever arrives: who is preempted for a more urgent one is less urgent than it, and that one
// starts in the same step.
TEST(SchedulerPriority, EveryPreemptionForAnUrgentOneStartsIt) {
  std::int64_t total = 0;
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto uniform = [&](int low, int high) {
      return std::uniform_int_distribution(low, high)(random);
    };
    SchedulerOptions options = kOptions;
    options.watermark = 0.1 * uniform(0, 2);
    World world({.num_blocks = uniform(8, 24), .block_size = 4}, options);
    std::map<SequenceId, int> priorities;
    for (int step = 0; step < 60; ++step) {
      if (uniform(0, 1) == 0) {
        const int priority = uniform(0, 3), branches = uniform(1, 2);
        const SequenceId id = world.Add({.prompt = TokenRange(uniform(1, 20), 1000 * step),
                                         .num_outputs = uniform(1, 9),
                                         .num_branches = branches,
                                         .priority = priority});
        for (int branch = 0; branch < branches; ++branch) {
          priorities[SequenceId{id.value() + static_cast<std::uint64_t>(branch)}] = priority;
        }
      }
      std::map<SequenceId, bool> was_running;
      for (const auto& view : world.scheduler().RunningSequences()) was_running[view.id] = true;
      const std::int64_t before = world.scheduler().stats().num_preemptions_for_urgent;
      world.Step();
      const std::int64_t preempted = world.scheduler().stats().num_preemptions_for_urgent - before;
      total += preempted;
      if (preempted == 0) continue;
      // In such a step nobody else starts.
      std::vector<SequenceId> started;
      for (const ScheduledSequence& s : world.plan().scheduled) {
        if (!was_running.contains(s.id)) started.push_back(s.id);
      }
      ASSERT_EQ(started.size(), 1u);
      const std::size_t first = world.plan().preempted.size() - static_cast<std::size_t>(preempted);
      for (std::size_t i = first; i < world.plan().preempted.size(); ++i) {
        EXPECT_GT(priorities.at(world.plan().preempted[i]), priorities.at(started[0]));
      }
    }
    world.RunToTheEnd();
  }
  EXPECT_GT(total, 100);
}

}  // namespace
}  // namespace quire::scheduler
