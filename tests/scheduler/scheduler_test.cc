// The contract of scheduler/scheduler.h, where a scenario (tests/scenarios) cannot show it.
#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "tests/scheduler/scheduler_world.h"

namespace quire::scheduler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::string MessageOf(const absl::Status& status) { return std::string(AsStd(status.message())); }

TEST(SchedulerOptions, C135_ValidateNamesTheFlag) {
  const auto message = [](auto change) {
    SchedulerOptions options;
    change(options);
    return MessageOf(options.Validate());
  };
  EXPECT_EQ(SchedulerOptions().Validate(), absl::OkStatus());
  EXPECT_THAT(message([](auto& o) { o.max_num_seqs = 0; }), HasSubstr("max-num-seqs"));
  EXPECT_THAT(message([](auto& o) { o.max_num_batched_tokens = 63; }),
              HasSubstr("max-num-batched-tokens must be in [--max-num-seqs,"));
  EXPECT_THAT(message([](auto& o) { o.max_num_batched_tokens = 0; }), HasSubstr("got 0"));
  EXPECT_THAT(message([](auto& o) { o.max_prefill_tokens = 0; }), HasSubstr("max-prefill-tokens"));
  EXPECT_THAT(message([](auto& o) { o.max_model_len = 1; }), HasSubstr("max-model-len"));
  EXPECT_THAT(message([](auto& o) { o.watermark = 1.0; }), HasSubstr("watermark"));
  EXPECT_THAT(message([](auto& o) { o.watermark = -0.1; }), HasSubstr("watermark"));
  EXPECT_THAT(message([](auto& o) { o.watermark = std::numeric_limits<double>::quiet_NaN(); }),
              HasSubstr("watermark"));
  EXPECT_THAT(message([](auto& o) { o.max_overtakes = -1; }), HasSubstr("max-overtakes"));
  EXPECT_THAT(message([](auto& o) { o.max_in_flight_steps = -1; }),
              HasSubstr("max-in-flight-steps"));
  EXPECT_THAT(message([](auto& o) { o.client_quantum = -1; }), HasSubstr("client-quantum"));
  EXPECT_THAT(message([](auto& o) { o.target_itl = absl::Milliseconds(-2); }),
              HasSubstr("target-itl-ms must be at least 0, got -2"));
  EXPECT_THAT(message([](auto& o) { o.sliding_window = -1; }), HasSubstr("sliding window"));
  EXPECT_EQ(message([](auto& o) { o.max_num_seqs = o.max_num_batched_tokens = 1; }), "");
}

TEST(SchedulerCheckFits, C37_TheLengthLimitCountsOneNewToken) {
  World world({.num_blocks = 64}, {.max_model_len = 64});
  EXPECT_EQ(world.scheduler().CheckFits(63), absl::OkStatus());
  for (const int length : {64, 65, 1000}) {
    const absl::Status status = world.scheduler().CheckFits(length);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(status), HasSubstr(std::to_string(length) + " tokens"));
    EXPECT_THAT(MessageOf(status), HasSubstr("64 tokens"));
  }
  EXPECT_THAT(MessageOf(world.scheduler().CheckFits(0)), HasSubstr("empty"));
}

TEST(SchedulerCheckFits, C20_APromptLargerThanThePoolIsRefusedWithBothNumbers) {
  World world({.num_blocks = 8}, {.max_model_len = 1024});
  for (const int length : {128, 129, 500}) {
    const absl::Status status = world.scheduler().CheckFits(length);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(status), HasSubstr(std::to_string(length) + " tokens"));
    EXPECT_THAT(MessageOf(status), HasSubstr("128 slots (8 blocks of 16)"));
  }
  EXPECT_EQ(world.scheduler().CheckFits(127), absl::OkStatus());
  const SequenceId served = world.Add({.prompt = TokenRange(10)});
  world.RunToTheEnd();
  EXPECT_TRUE(world.Finished(served));
}

TEST(SchedulerCheckFits, C16_WithAWindowOnlyTheWindowAndAChunkMustFitThePool) {
  const auto fits = [](std::int64_t num_blocks) {
    World world({.num_blocks = num_blocks},
                {.max_prefill_tokens = 32, .max_model_len = 1024, .sliding_window = 64});
    return world.scheduler().CheckFits(1000).ok();
  };
  EXPECT_TRUE(fits(7));  // 63 + 32 tokens, wherever in a block they begin: 110 slots.
  EXPECT_FALSE(fits(6));
}

TEST(SchedulerCheckFits, C14_RefusalsLeaveNothingBehind) {
  World world({.num_blocks = 8}, {.max_model_len = 128});
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(world.scheduler().CheckFits(128).ok());
  for (int i = 0; i < 5; ++i) world.Add({.prompt = TokenRange(100, 1000 * i), .num_outputs = 3});
  world.RunToTheEnd();
}

TEST(Scheduler, ReportsAdmissionsOnceAndRunningSequences) {
  World world({.num_blocks = 8}, {});
  const SequenceId a = world.Add({.prompt = TokenRange(20), .num_outputs = 3});
  EXPECT_EQ(world.scheduler().stats().num_waiting, 1);
  EXPECT_EQ(world.scheduler().stats().num_waiting_tokens, 20);
  world.Step();
  EXPECT_THAT(world.plan().admitted, testing::SizeIs(1));
  world.Step();
  EXPECT_THAT(world.plan().admitted, IsEmpty());
  const std::vector<Scheduler::SequenceView> running = world.scheduler().RunningSequences();
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].id, a);
  EXPECT_EQ(running[0].num_tokens, 22);
  EXPECT_EQ(running[0].num_computed_tokens, 21);
  EXPECT_THAT(running[0].block_table, ElementsAre(BlockId{0}, BlockId{1}));
  EXPECT_EQ(world.scheduler().stats().num_running, 1);
  EXPECT_EQ(world.scheduler().stats().num_waiting, 0);
}

TEST(Scheduler, APlanShowsTokensAndTheirTable) {
  World world({.num_blocks = 8, .block_size = 4}, {.max_num_seqs = 1, .max_num_batched_tokens = 6});
  world.Add({.prompt = TokenRange(9, 100)});
  const StepPlan& plan = world.scheduler().Schedule(world.now());
  ASSERT_EQ(plan.scheduled.size(), 1u);
  const ScheduledSequence& chunk = plan.scheduled[0];
  EXPECT_EQ(chunk.first_token, 0);
  EXPECT_EQ(chunk.num_tokens, 6);
  EXPECT_FALSE(chunk.samples);
  EXPECT_EQ(chunk.tokens.size(), 9u);
  EXPECT_EQ(chunk.tokens[8], 108);
  EXPECT_EQ(chunk.block_table.size(), 2u);  // What the chunk reaches, not all that is held.
  EXPECT_EQ(chunk.first_position, 0);
  EXPECT_EQ(plan.num_tokens, 6);
  world.scheduler().Apply(world.engine().Run(plan));
}

TEST(Scheduler, ResultsMayComeInAnyOrder) {
  World world({.num_blocks = 16}, {});
  const SequenceId a = world.Add({.prompt = TokenRange(5), .num_outputs = 3, .num_branches = 3});
  const SequenceId b = world.Add({.prompt = TokenRange(5, 100), .num_outputs = 3});
  while (world.scheduler().has_work()) {
    StepResult result = world.engine().Run(world.scheduler().Schedule(world.now()));
    std::ranges::reverse(result.sequences);
    world.scheduler().Apply(result);
    world.scheduler().CheckInvariants();
  }
  EXPECT_EQ(world.output(a), fakes::ExpectedOutput(TokenRange(5), 0, 3));
  EXPECT_EQ(world.output(SequenceId{a.value() + 2}), fakes::ExpectedOutput(TokenRange(5), 2, 3));
  EXPECT_EQ(world.output(b), fakes::ExpectedOutput(TokenRange(5, 100), 0, 3));
}

TEST(Scheduler, SeveralNewTokensAreComputedTogetherInTheNextStep) {
  World world({.num_blocks = 8, .block_size = 4}, {});
  world.Add({.prompt = TokenRange(3), .num_outputs = 100});
  const SequenceId id = world.scheduler().Schedule(world.now()).scheduled[0].id;
  world.scheduler().Apply({.sequences = {{id, {7, 8, 9}, false}}});
  const StepPlan& plan = world.scheduler().Schedule(world.now());
  EXPECT_EQ(plan.scheduled[0].first_token, 3);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 3);
  EXPECT_EQ(plan.scheduled[0].block_table.size(), 2u);
  EXPECT_TRUE(plan.scheduled[0].samples);
  EXPECT_EQ(world.scheduler().stats().scheduled_decode_tokens, 3);
  world.scheduler().Apply({.sequences = {{id, {}, true}}});
  world.scheduler().CheckInvariants();
  EXPECT_FALSE(world.scheduler().has_work());
}

// Two blocks would do for two sequences with a token each.
TEST(Scheduler, SeveralNewTokensOfEachAreRoomToMake) {
  World world({.num_blocks = 4, .block_size = 4}, {.watermark = 0.0});
  const SequenceId a = world.Add({.prompt = TokenRange(3), .num_outputs = 10});
  const SequenceId b = world.Add({.prompt = TokenRange(3, 100), .num_outputs = 10});
  world.scheduler().Schedule(world.now());
  world.scheduler().Apply(
      {.sequences = {{a, {1, 2, 3, 4, 5, 6}, false}, {b, {1, 2, 3, 4, 5, 6}, false}}});
  world.scheduler().CheckInvariants();
  const StepPlan& plan = world.scheduler().Schedule(world.now());
  EXPECT_THAT(plan.preempted, ElementsAre(b));
  ASSERT_EQ(plan.scheduled.size(), 1u);
  EXPECT_EQ(plan.scheduled[0].id, a);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 6);
}

TEST(Scheduler, NothingToDoIsAnEmptyPlanThatNeedsNoApply) {
  World world({.num_blocks = 8}, {});
  EXPECT_TRUE(world.scheduler().Schedule(world.now()).empty());
  EXPECT_TRUE(world.scheduler().Schedule(world.now()).empty());
  EXPECT_EQ(world.scheduler().stats().num_steps, 0);
  EXPECT_EQ(world.scheduler().next_deadline(), absl::InfiniteFuture());
}

TEST(SchedulerDeathTest, MisuseByTheEngineIsABug) {
  World world({.num_blocks = 8}, {});
  const SequenceId a = world.Add({.prompt = TokenRange(3), .num_outputs = 2});
  EXPECT_DEATH(world.scheduler().Add({.id = a, .prompt = {1}}), "is in use");
  EXPECT_DEATH(world.scheduler().Add({.id = SequenceId{99}}), "empty");
  world.scheduler().Schedule(world.now());
  EXPECT_DEATH(world.scheduler().Schedule(world.now()), "Schedule before Apply");
  EXPECT_DEATH(world.scheduler().Cancel(a), "between Schedule and Apply");
  EXPECT_DEATH(world.scheduler().Apply({}), "no result for sequence 1");
  world.scheduler().Abandon();
}

TEST(Scheduler, C36_CancellingWhatHasEndedDoesNothing) {
  World world({.num_blocks = 8}, {});
  const SequenceId a = world.Add({.prompt = TokenRange(3)});
  const SequenceId b = world.Add({.prompt = TokenRange(3, 100), .num_outputs = 3});
  world.Step();
  ASSERT_TRUE(world.Finished(a));
  world.scheduler().Cancel(a);
  world.scheduler().Cancel(a);
  world.scheduler().Cancel(SequenceId{12345});
  world.RunToTheEnd();
  EXPECT_TRUE(world.Finished(b));
}

TEST(Scheduler, C12_EveryEndingGivesEachBlockBackOnce) {
  World world({.num_blocks = 4, .block_size = 4, .enable_prefix_caching = false}, {});
  const auto expect_all_free = [&world] {
    world.scheduler().CheckInvariants();
    EXPECT_EQ(world.blocks().stats().free, 4);
  };
  // By length or stop: the engine says finished.
  world.Add({.prompt = TokenRange(6), .num_outputs = 4});
  world.RunToTheEnd();
  expect_all_free();
  // By cancel, twice.
  const SequenceId cancelled = world.Add({.prompt = TokenRange(6), .num_outputs = 4});
  world.Step();
  world.scheduler().Cancel(cancelled);
  world.scheduler().Cancel(cancelled);
  expect_all_free();
  // By deadline.
  world.Add(
      {.prompt = TokenRange(6), .num_outputs = 4, .deadline = world.now() + absl::Seconds(1)});
  world.Step();
  world.Advance(absl::Seconds(1));
  world.Step();
  expect_all_free();
  // By a failed step.
  world.Add({.prompt = TokenRange(6), .num_outputs = 4});
  world.scheduler().Schedule(world.now());
  EXPECT_EQ(world.scheduler().Abandon().size(), 1u);
  expect_all_free();
  // By outgrowing the pool.
  world.Add({.prompt = TokenRange(6), .num_outputs = 40});
  world.RunToTheEnd();
  expect_all_free();
}

TEST(Scheduler, NextDeadlineIsTheEarliestOfAll) {
  World world({.num_blocks = 8}, {.max_num_seqs = 1});
  const absl::Time start = world.now();
  world.Add({.prompt = TokenRange(3), .num_outputs = 9, .deadline = start + absl::Seconds(9)});
  const SequenceId b = world.Add({.prompt = TokenRange(3), .deadline = start + absl::Seconds(4)});
  world.Step();
  EXPECT_EQ(world.scheduler().next_deadline(), start + absl::Seconds(4));
  world.Advance(absl::Seconds(3));
  world.Step();
  EXPECT_THAT(world.terminations(), IsEmpty());
  world.Advance(absl::Seconds(2));
  world.Step();
  EXPECT_THAT(world.terminations(), ElementsAre(Pair(b, TerminalReason::kDeadlineExceeded)));
  EXPECT_EQ(world.scheduler().next_deadline(), start + absl::Seconds(9));
}

TEST(Scheduler, C35_NoTokenIsSpentAfterADeadlineInTheQueue) {
  World world({.num_blocks = 8}, {.max_num_seqs = 1});
  world.Add({.prompt = TokenRange(3), .num_outputs = 5});
  const SequenceId late = world.Add({.prompt = TokenRange(50, 100),
                                     .num_branches = 1,
                                     .deadline = world.now() + absl::Seconds(1)});
  world.Step();
  world.Advance(absl::Seconds(1));
  world.RunToTheEnd();
  EXPECT_THAT(world.terminations(), ElementsAre(Pair(late, TerminalReason::kDeadlineExceeded)));
  EXPECT_EQ(world.scheduler().stats().scheduled_prefill_tokens, 3);
  EXPECT_THAT(world.output(late), IsEmpty());
}

TEST(Scheduler, PendingForksEndWithTheirParentsDeadline) {
  World world({.num_blocks = 8}, {.max_num_seqs = 4});
  world.Add({.prompt = TokenRange(3), .num_branches = 2, .deadline = world.now()});
  world.Step();
  EXPECT_THAT(world.terminations(),
              ElementsAre(Pair(SequenceId{1}, TerminalReason::kDeadlineExceeded),
                          Pair(SequenceId{2}, TerminalReason::kDeadlineExceeded)));
  EXPECT_FALSE(world.scheduler().has_work());
}

// Only a bug can bring it about; here somebody else took the pool.
TEST(Scheduler, ForwardProgressGuardEndsTheOldestInsteadOfHanging) {
  World world({.num_blocks = 4}, {});
  world.HoldBlocks(4);
  world.Add({.prompt = TokenRange(3), .num_branches = 2});
  world.Add({.prompt = TokenRange(3, 100)});
  world.Step();
  EXPECT_TRUE(world.plan().empty());
  EXPECT_FALSE(world.scheduler().has_work());
  EXPECT_EQ(world.scheduler().stats().no_progress_failures, 2);
  EXPECT_THAT(world.terminations(), ElementsAre(Pair(SequenceId{1}, TerminalReason::kNoProgress),
                                                Pair(SequenceId{2}, TerminalReason::kNoProgress),
                                                Pair(SequenceId{3}, TerminalReason::kNoProgress)));
}

TEST(Scheduler, ForwardProgressGuardStaysQuietWhileAnythingRuns) {
  World world({.num_blocks = 4}, {});
  world.HoldBlocks(3);
  const SequenceId large = world.Add({.prompt = TokenRange(33)});
  const SequenceId small = world.Add({.prompt = TokenRange(3, 100)});
  world.Step();
  EXPECT_TRUE(world.Finished(small));
  EXPECT_EQ(world.scheduler().stats().no_progress_failures, 0);
  world.Step();
  EXPECT_THAT(world.terminations(), ElementsAre(Pair(large, TerminalReason::kNoProgress)));
}

// It keeps its work, and the resuming ones get on.
TEST(Scheduler, TheMostSeniorWaitsForResumingOnesRatherThanPreemptThem) {
  World world(
      {.num_blocks = 7, .block_size = 4, .enable_prefix_caching = false},
      {.max_num_seqs = 3, .max_num_batched_tokens = 64, .max_prefill_tokens = 1, .watermark = 0});
  const SequenceId senior = world.Add({.prompt = TokenRange(3), .num_outputs = 9});
  const SequenceId resuming = world.Add({.prompt = TokenRange(6, 100), .num_outputs = 5});
  const SequenceId other = world.Add({.prompt = TokenRange(14, 200), .num_outputs = 9});
  world.Steps(3);
  ASSERT_EQ(world.preemptions(resuming), 1);
  world.scheduler().Cancel(other);
  world.Step();
  ASSERT_TRUE(world.Ran(resuming));  // The first of its 8 tokens.
  world.HoldBlocks(world.blocks().num_available());
  world.Steps(2);
  ASSERT_TRUE(world.Ran(senior));

  world.Step();  // The senior one needs a block, and there is none.
  EXPECT_FALSE(world.Ran(senior));
  EXPECT_TRUE(world.Ran(resuming));
  EXPECT_EQ(world.preemptions(resuming), 1);
  EXPECT_EQ(world.output(resuming).size(), 3u);  // Its first token since it resumed.
  world.Step();
  EXPECT_EQ(world.preemptions(resuming), 2);
  EXPECT_TRUE(world.Ran(senior));
  EXPECT_EQ(world.scheduler().stats().no_progress_failures, 0);
  world.ReleaseHeldBlocks();
  world.RunToTheEnd();
}

TEST(Scheduler, C31_DestroyedWithWorkInFlight) {
  World world({.num_blocks = 64}, {});
  for (int i = 0; i < 20; ++i) {
    world.Add({.prompt = TokenRange(30, 1000 * i), .num_outputs = 20, .num_branches = 1 + i % 3});
  }
  world.Steps(3);
  world.scheduler().Schedule(world.now());
  // The leak check and the pool's own check at destruction do the rest.
}

TEST(Scheduler, C103_AQueryIsCountedOnceHoweverLongItWaits) {
  World world({.num_blocks = 8, .block_size = 128}, {.max_num_seqs = 4, .watermark = 0});
  world.Add({.prompt = TokenRange(300)});
  world.RunToTheEnd();
  world.Add({.prompt = TokenRange(8, 1000), .num_outputs = 110});
  world.Step();
  world.HoldBlocks(5);  // Leaves the two cached blocks, but not the third that is needed.
  const SchedulerStats before = world.scheduler().stats();
  const SequenceId waiting = world.Add({.prompt = TokenRange(300)});
  world.Steps(100);
  EXPECT_EQ(world.scheduler().stats().prefix_query_tokens, before.prefix_query_tokens);
  EXPECT_EQ(world.scheduler().stats().prefix_hit_tokens, before.prefix_hit_tokens);
  world.ReleaseHeldBlocks();
  world.Step();
  ASSERT_TRUE(world.Finished(waiting));
  EXPECT_EQ(world.scheduler().stats().prefix_query_tokens - before.prefix_query_tokens, 300);
  EXPECT_EQ(world.scheduler().stats().prefix_hit_tokens - before.prefix_hit_tokens, 256);
  EXPECT_EQ(world.cached_tokens().at(waiting), 256);
}

TEST(Scheduler, C103_PreemptionsDoNotCountAsHits) {
  World world({.num_blocks = 8, .block_size = 4}, {.max_num_seqs = 4});
  for (int i = 0; i < 4; ++i) world.Add({.prompt = TokenRange(6, 1000 * i), .num_outputs = 12});
  world.RunToTheEnd();
  const SchedulerStats stats = world.scheduler().stats();
  EXPECT_GT(stats.num_preemptions, 0);
  EXPECT_EQ(stats.prefix_hit_tokens, 0);
  EXPECT_EQ(stats.prefix_query_tokens, 24);
  EXPECT_GT(stats.prefix_hit_tokens_after_preemption, 0);
}

TEST(Scheduler, RecomputedTokensAreWhatPreemptionCost) {
  World world({.num_blocks = 8, .block_size = 4}, {.max_num_seqs = 4});
  std::int64_t needed = 0;
  for (int i = 0; i < 4; ++i) {
    world.Add({.prompt = TokenRange(6, 1000 * i), .num_outputs = 12});
    needed += 6 + 12 - 1;  // The last token is never computed.
  }
  world.RunToTheEnd();
  const SchedulerStats stats = world.scheduler().stats();
  EXPECT_EQ(stats.scheduled_prefill_tokens + stats.scheduled_decode_tokens,
            needed + stats.recomputed_tokens);
  EXPECT_GT(stats.recomputed_tokens, 0);
}

TEST(Scheduler, C104_PreemptionsRepeatNoToken) {
  World world({.num_blocks = 12, .block_size = 8}, {.max_num_seqs = 10});
  std::vector<SequenceId> ids;
  for (int i = 0; i < 10; ++i) {
    ids.push_back(world.Add({.prompt = TokenRange(9, 1000 * i), .num_outputs = 50}));
  }
  world.RunToTheEnd();
  EXPECT_GT(world.scheduler().stats().num_preemptions, 0);
  std::size_t generated = 0;
  for (const SequenceId id : ids) generated += world.output(id).size();
  EXPECT_EQ(generated, 500u);
  EXPECT_EQ(world.cached_tokens().size(), 10u);  // Each was admitted, and reported, once.
}

TEST(Scheduler, TheOldestWaitingArrivalIsThatOfAnyClass) {
  World world({.num_blocks = 64}, {.max_num_seqs = 1, .policy = Policy::kPriority});
  EXPECT_EQ(world.scheduler().stats().oldest_waiting_arrival, absl::InfiniteFuture());
  world.Add({.prompt = TokenRange(3), .num_outputs = 9});
  world.Step();
  world.Add({.prompt = TokenRange(3, 100), .priority = 5});
  const absl::Time oldest = world.now();
  world.Add({.prompt = TokenRange(3, 200), .priority = 1});
  EXPECT_EQ(world.scheduler().stats().oldest_waiting_arrival, oldest);
  world.RunToTheEnd();
  EXPECT_EQ(world.scheduler().stats().oldest_waiting_arrival, absl::InfiniteFuture());
}

TEST(Scheduler, AReservationThatCanNeverBeHadIsABug) {
  World world({.num_blocks = 4}, {});
  EXPECT_DEATH(world.scheduler().Add({.id = SequenceId{1}, .prompt = {1}, .reserve_tokens = 65}),
               "cannot reserve 65 tokens");
}

// The text of the last turn, its answer included, is what the session keeps.
TEST(Scheduler, AFinishedTurnIsKeptWithAllOfItsTokens) {
  World world({.num_blocks = 16, .block_size = 4}, {});
  const block_manager::SessionKey key{.id = "s", .salt = {}};
  world.scheduler().Add(
      {.id = SequenceId{1}, .prompt = TokenRange(6), .max_total_tokens = 100, .session = key});
  for (const bool finished : {false, false, true}) {
    world.scheduler().Schedule(world.now());
    world.scheduler().Apply({.sequences = {{SequenceId{1}, {77}, finished}}});
  }
  const auto tokens = world.blocks().SessionTokens(key);
  ASSERT_TRUE(tokens.has_value());
  EXPECT_THAT(*tokens, ElementsAre(0, 1, 2, 3, 4, 5, 77, 77, 77));
  EXPECT_EQ(world.blocks().stats().leased, 2);
}

// An answer that outgrew the pool is one that the next turn builds on, too.
TEST(Scheduler, ATurnThatOutgrowsThePoolIsKept) {
  World world({.num_blocks = 2, .block_size = 4}, {.watermark = 0});
  const block_manager::SessionKey key{.id = "s", .salt = {}};
  world.scheduler().Add(
      {.id = SequenceId{1}, .prompt = TokenRange(6), .max_total_tokens = 100, .session = key});
  for (int i = 0; i < 3; ++i) {
    world.scheduler().Schedule(world.now());
    world.scheduler().Apply({.sequences = {{SequenceId{1}, {77}, /*finished=*/false}}});
  }
  const StepPlan& plan = world.scheduler().Schedule(world.now());
  ASSERT_EQ(plan.terminated.size(), 1);
  EXPECT_EQ(plan.terminated[0].reason, TerminalReason::kKvCapacity);
  const auto tokens = world.blocks().SessionTokens(key);
  ASSERT_TRUE(tokens.has_value());
  EXPECT_THAT(*tokens, ElementsAre(0, 1, 2, 3, 4, 5, 77, 77, 77));
}

// As a simulation has it whose clock ran away.
TEST(Scheduler, NothingExpiresAtTheEndOfTime) {
  World world({.num_blocks = 16}, {});
  world.scheduler().Add({.id = SequenceId{1}, .prompt = TokenRange(6), .max_total_tokens = 100});
  EXPECT_EQ(world.scheduler().Schedule(absl::InfiniteFuture()).scheduled.size(), 1);
  world.blocks().ExpireLeases(absl::InfiniteFuture());
  EXPECT_EQ(world.blocks().stats().leases_expired, 0);
}

TEST(Scheduler, NobodyWaitsForAReasonOnceAllAreCancelled) {
  World world({.num_blocks = 16}, {.max_num_seqs = 1});
  const SequenceId running = world.Add({.prompt = TokenRange(6), .num_outputs = 9});
  const SequenceId waiting = world.Add({.prompt = TokenRange(6, 100)});
  world.Step();
  EXPECT_EQ(world.scheduler().stats().waiting_because.slots, 1);
  world.scheduler().Cancel(waiting);
  EXPECT_EQ(world.scheduler().stats().waiting_because.total(), 0);
  world.scheduler().Cancel(running);
}

TEST(Scheduler, C18_SaltsShareWithinAndNotAcross) {
  World world({.num_blocks = 32}, {});
  const SequenceId first = world.Add({.prompt = TokenRange(64), .salt = "A"});
  world.RunToTheEnd();
  const SequenceId same = world.Add({.prompt = TokenRange(64), .salt = "A"});
  const SequenceId other = world.Add({.prompt = TokenRange(64), .salt = "B"});
  world.RunToTheEnd();
  EXPECT_EQ(world.cached_tokens().at(first), 0);
  EXPECT_EQ(world.cached_tokens().at(same), 48);
  EXPECT_EQ(world.cached_tokens().at(other), 0);
}

}  // namespace
}  // namespace quire::scheduler
