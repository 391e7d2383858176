// scheduler/prefill_cap.h on synthetic steps, by itself and inside a scheduler.
#include "scheduler/prefill_cap.h"

#include <gtest/gtest.h>

#include "tests/scheduler/scheduler_world.h"

namespace quire::scheduler {
namespace {

// A step's time: a part for the decodes, and so much for each prefill token.
struct StepModel {
  absl::Duration decodes;
  absl::Duration per_token;
  absl::Duration Time(std::int32_t num_prefill_tokens) const {
    return decodes + num_prefill_tokens * per_token;
  }
};

void Feed(const StepModel& model, int num_steps, PrefillCap* cap) {
  for (int i = 0; i < num_steps; ++i) cap->StepTook(model.Time(cap->tokens()), cap->tokens());
}

TEST(PrefillCap, WithoutATargetItIsTheConfiguredOne) {
  PrefillCap cap(absl::ZeroDuration(), 16, 512);
  Feed({absl::Seconds(9), absl::Seconds(1)}, 10, &cap);
  EXPECT_EQ(cap.tokens(), 512);
}

TEST(PrefillCap, ConvergesToTheTokensThatTakeNineTenthsOfTheTarget) {
  PrefillCap cap(absl::Milliseconds(50), 16, 4096);
  EXPECT_EQ(cap.tokens(), 4096);
  Feed({absl::Milliseconds(10), absl::Microseconds(100)}, 60, &cap);
  EXPECT_NEAR(cap.tokens(), 350, 1);  // 10 ms + 350 x 0.1 ms = 45 ms.
}

TEST(PrefillCap, MeetsTheTargetWhereverThatIsFeasible) {
  const absl::Duration target = absl::Milliseconds(50);
  for (const int decode_ms : {0, 5, 20, 40, 44}) {
    for (const int token_us : {1, 10, 100, 1000, 10'000}) {
      SCOPED_TRACE(testing::Message() << decode_ms << " ms + " << token_us << " us a token");
      const StepModel model{absl::Milliseconds(decode_ms), absl::Microseconds(token_us)};
      PrefillCap cap(target, 16, 8192);
      Feed(model, 200, &cap);
      const bool is_met = model.Time(cap.tokens()) <= target;
      EXPECT_EQ(is_met, model.Time(16) <= target);
      if (!is_met) {
        EXPECT_EQ(cap.tokens(), 16);
      }
      // And no lower than need be.
      const bool uses_target = model.Time(cap.tokens() + 1 + cap.tokens() / 50) >= 0.88 * target;
      EXPECT_TRUE(uses_target || cap.tokens() == 8192) << cap.tokens();
    }
  }
}

TEST(PrefillCap, FollowsWhenStepsGetSlowerAndFaster) {
  PrefillCap cap(absl::Milliseconds(50), 16, 4096);
  Feed({absl::Milliseconds(10), absl::Microseconds(100)}, 60, &cap);
  Feed({absl::Milliseconds(30), absl::Microseconds(100)}, 60, &cap);
  EXPECT_NEAR(cap.tokens(), 150, 1);
  Feed({absl::Milliseconds(10), absl::Microseconds(100)}, 60, &cap);
  EXPECT_NEAR(cap.tokens(), 350, 1);
}

TEST(PrefillCap, OneLateStepIsForgottenSoon) {
  PrefillCap cap(absl::Milliseconds(50), 16, 4096);
  const StepModel model{absl::Milliseconds(10), absl::Microseconds(100)};
  Feed(model, 60, &cap);
  cap.StepTook(absl::Seconds(20), cap.tokens());
  EXPECT_EQ(cap.tokens(), 16);
  Feed(model, 20, &cap);
  EXPECT_GT(cap.tokens(), 300);
}

TEST(PrefillCap, ASmallStepInTimeSaysNothingAndALateOneLowersIt) {
  PrefillCap cap(absl::Milliseconds(50), 16, 1000);
  cap.StepTook(absl::Milliseconds(1), 10);
  EXPECT_EQ(cap.tokens(), 1000);
  cap.StepTook(absl::Milliseconds(44), 10);
  EXPECT_EQ(cap.tokens(), 1000);
  cap.StepTook(absl::Milliseconds(90), 100);  // 100 tokens x 45 / 90.
  EXPECT_EQ(cap.tokens(), 50);
  cap.StepTook(absl::Milliseconds(44), 0);  // Decodes alone.
  EXPECT_EQ(cap.tokens(), 50);
}

TEST(PrefillCap, NeverBelowOneBlockNorAboveTheConfiguredOne) {
  PrefillCap small(absl::Milliseconds(1), 16, 4);
  small.StepTook(absl::Seconds(1), 4);
  EXPECT_EQ(small.tokens(), 4);
  PrefillCap cap(absl::Milliseconds(1), 16, 64);
  cap.StepTook(absl::Seconds(1), 64);
  EXPECT_EQ(cap.tokens(), 16);
  for (int i = 0; i < 100; ++i) cap.StepTook(absl::Nanoseconds(1), cap.tokens());
  EXPECT_EQ(cap.tokens(), 64);
}

// 8 streams decode while prompts of 2000 tokens come: without a target a step takes 5 ms + 512
// tokens x 0.1 ms = 56.2 ms.
TEST(PrefillCap, StreamsKeepTheTargetWhileLongPromptsCome) {
  const StepModel model{absl::Milliseconds(5), absl::Microseconds(100)};
  for (const bool has_target : {false, true}) {
    SchedulerOptions options{.max_num_seqs = 16, .max_prefill_tokens = 512};
    if (has_target) options.target_itl = absl::Milliseconds(30);
    World world({.num_blocks = 2000}, options);
    for (int i = 0; i < 8; ++i) {
      world.Add({.prompt = TokenRange(8, 10'000 * i), .num_outputs = 200});
    }
    world.Steps(2);
    std::vector<SequenceId> prompts;
    for (int i = 0; i < 4; ++i) {
      prompts.push_back(world.Add({.prompt = TokenRange(2000, 100'000 * (i + 1))}));
    }
    absl::Duration longest = absl::ZeroDuration();
    for (int step = 0; !world.Finished(prompts.back()); ++step) {
      ASSERT_LT(step, 100);
      world.Step();
      const absl::Duration took = model.Time(world.plan().num_tokens - 8);
      if (step >= 1) longest = std::max(longest, took);
      world.scheduler().StepTook(took);
    }
    if (has_target) {
      EXPECT_LE(longest, absl::Milliseconds(30));
      EXPECT_NEAR(world.scheduler().stats().prefill_cap, 220, 2);  // 5 ms + 22 ms = 27 ms.
    } else {
      EXPECT_EQ(longest, absl::Microseconds(56'200));
      EXPECT_EQ(world.scheduler().stats().prefill_cap, 512);
    }
  }
}

}  // namespace
}  // namespace quire::scheduler
