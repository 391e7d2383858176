// Requests that arrive together with one new prefix compute it once.
#include "scheduler/prefixes_in_flight.h"

#include <gtest/gtest.h>

#include "tests/scheduler/scheduler_world.h"

namespace quire::scheduler {
namespace {

std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr SchedulerOptions kOptions{.max_num_seqs = 32, .max_prefill_tokens = 100, .watermark = 0};

TEST(PrefixesInFlight, SixteenRequestsWithOneNewPrefixComputeItOnce) {
  World world({.num_blocks = 200}, kOptions);
  const std::vector<TokenId> prefix = TokenRange(640);
  world.Add({.prompt = TokenRange(4, 9'000), .num_outputs = 40});  // So that chunks are 100 tokens.
  world.Step();
  for (int i = 0; i < 16; ++i) {
    world.Add({.prompt = Join(prefix, TokenRange(10, 10'000 + 100 * i)), .num_outputs = 2});
  }
  world.RunToTheEnd();
  const SchedulerStats stats = world.scheduler().stats();
  EXPECT_EQ(stats.scheduled_prefill_tokens, 4 + 640 + 16 * 10);
  EXPECT_EQ(stats.prefix_hit_tokens, 15 * 640);
  EXPECT_EQ(stats.prefix_hit_tokens_in_flight, 15 * 640);
  EXPECT_EQ(stats.in_flight_waits, 15);
  EXPECT_EQ(stats.in_flight_timeouts, 0);
}

TEST(PrefixesInFlight, WithoutTheWaitEachComputesIt) {
  SchedulerOptions options = kOptions;
  options.max_in_flight_steps = 0;
  World world({.num_blocks = 2000}, options);
  for (int i = 0; i < 4; ++i) world.Add({.prompt = TokenRange(100)});
  world.Step();
  EXPECT_EQ(world.scheduler().stats().scheduled_prefill_tokens, 400);
  EXPECT_EQ(world.scheduler().stats().in_flight_waits, 0);
  EXPECT_EQ(world.scheduler().stats().in_flight_timeouts, 0);
}

// With a window the chunks are short, so that the others see the first one at work.
TEST(PrefixesInFlight, TheWaitIsBoundedAndCounted) {
  World world(
      {.num_blocks = 100},
      {.max_prefill_tokens = 16, .watermark = 0, .max_in_flight_steps = 3, .sliding_window = 1024});
  world.Add({.prompt = TokenRange(161)});  // Ten steps to its last full block.
  const SequenceId waiter = world.Add({.prompt = TokenRange(161)});
  world.Steps(3);
  EXPECT_FALSE(world.Ran(waiter));
  EXPECT_EQ(world.scheduler().stats().in_flight_timeouts, 0);
  world.Step();
  EXPECT_TRUE(world.Ran(waiter));
  EXPECT_EQ(world.cached_tokens().at(waiter), 48);  // Three chunks.
  EXPECT_EQ(world.scheduler().stats().in_flight_waits, 1);
  EXPECT_EQ(world.scheduler().stats().in_flight_timeouts, 1);
  EXPECT_EQ(world.scheduler().stats().prefix_hit_tokens_in_flight, 48);
  world.RunToTheEnd();
}

// A step looks at 256 waiting ones at most.
TEST(PrefixesInFlight, TheWalkPastThoseThatWaitIsBounded) {
  for (const int num_waiters : {255, 256}) {
    World world({.num_blocks = 400}, {.max_num_seqs = 512, .max_prefill_tokens = 2048});
    world.Add({.prompt = TokenRange(40)});
    for (int i = 0; i < num_waiters; ++i) world.Add({.prompt = TokenRange(40)});
    const SequenceId other = world.Add({.prompt = TokenRange(3, 1000)});
    world.Step();
    EXPECT_EQ(world.Ran(other), num_waiters == 255);
    const WaitingBecause because = world.scheduler().stats().waiting_because;
    EXPECT_EQ(because.prefix_in_flight, num_waiters);
    EXPECT_EQ(because.turn, num_waiters == 255 ? 0 : 1);
  }
}

// Both branches are preempted and nothing of them stays cached; the prompt and the part of the
// output that they have in common are computed once.
TEST(PrefixesInFlight, C15_APreemptedGroupComputesItsPromptOnceWhenItResumes) {
  World world({.num_blocks = 12, .block_size = 4},
              {.max_num_seqs = 4, .policy = Policy::kPriority, .watermark = 0});
  world.Add({.prompt = TokenRange(30), .num_outputs = 4, .num_branches = 3, .priority = 1});
  world.Steps(2);
  world.Add({.prompt = TokenRange(47, 1000)});
  world.Step();
  ASSERT_EQ(world.plan().preempted.size(), 3u);
  const SchedulerStats before = world.scheduler().stats();
  world.RunToTheEnd();
  const SchedulerStats after = world.scheduler().stats();
  // Once the 28 tokens of the full blocks; 3 to 4 more for each branch.
  EXPECT_EQ(after.scheduled_prefill_tokens - before.scheduled_prefill_tokens, 32 + 2 * 4);
  EXPECT_EQ(after.prefix_hit_tokens_after_preemption, 2 * 28);
}

// Not known to any scheduler; running ones hold no blocks.
Sequence MakeSequence(block_manager::BlockManager* blocks, std::vector<TokenId> tokens,
                      bool running, std::string_view salt = "") {
  Sequence sequence{.id = SequenceId{1},
                    .tokens = std::move(tokens),
                    .arrival = absl::UnixEpoch(),
                    .blocks = blocks->NewSequence(block_manager::CacheSalt::ForRequest(salt))};
  sequence.running = running;
  sequence.first_block_hash = 7;  // Collides for all: tokens and salts are compared.
  return sequence;
}

TEST(PrefixesInFlight, FindsTheLongestVerifiedPrefix) {
  block_manager::BlockManager blocks({.num_blocks = 16, .block_size = 4});
  const Sequence same4 = MakeSequence(&blocks, Join(TokenRange(5), TokenRange(9, 100)), true);
  const Sequence same8 = MakeSequence(&blocks, Join(TokenRange(11), TokenRange(9, 200)), true);
  const Sequence salted = MakeSequence(&blocks, TokenRange(20), true, "salt");
  const Sequence other = MakeSequence(&blocks, TokenRange(20, 500), true);
  const Sequence less_urgent = [&] {
    Sequence sequence = MakeSequence(&blocks, TokenRange(20), true);
    sequence.priority = 1;
    return sequence;
  }();
  const Sequence waiting = MakeSequence(&blocks, TokenRange(13), false);

  PrefixesInFlight prefixes(4);
  EXPECT_EQ(prefixes.Find(waiting).computing, nullptr);
  for (const Sequence* s : {&same8, &same4, &salted, &other, &less_urgent}) prefixes.Add(s);
  EXPECT_EQ(prefixes.Find(waiting).computing, &same8);
  EXPECT_EQ(prefixes.Find(waiting).num_tokens, 8);

  // Of a whole prompt one token at least is left to compute: 12 of 13, but 8 of 12 tokens.
  const Sequence twin = MakeSequence(&blocks, TokenRange(13), true);
  prefixes.Add(&twin);
  EXPECT_EQ(prefixes.Find(waiting).num_tokens, 12);
  EXPECT_EQ(prefixes.Find(MakeSequence(&blocks, TokenRange(12), false)).num_tokens, 8);

  prefixes.Clear();
  EXPECT_EQ(prefixes.Find(waiting).computing, nullptr);
}

TEST(PrefixesInFlight, WhatIsComputedIsNotInFlight) {
  block_manager::BlockManager blocks({.num_blocks = 16, .block_size = 4});
  Sequence computing = MakeSequence(&blocks, TokenRange(11), true);
  const Sequence waiting = MakeSequence(&blocks, Join(TokenRange(8), TokenRange(9, 100)), false);
  ASSERT_EQ(blocks.Admit(&computing.blocks, computing.tokens, {}), block_manager::Verdict::kNow);
  const auto is_found = [&] {
    PrefixesInFlight prefixes(4);
    prefixes.Add(&computing);
    return prefixes.Find(waiting).computing != nullptr;
  };
  EXPECT_TRUE(is_found());
  blocks.Commit(&computing.blocks, computing.tokens, 7);
  EXPECT_TRUE(is_found());
  computing.decoding = true;
  EXPECT_FALSE(is_found());
  computing.decoding = false;
  blocks.Commit(&computing.blocks, computing.tokens, 8);
  EXPECT_FALSE(is_found());
}

TEST(PrefixesInFlight, WhenTheComputingOneIsCancelledTheNextComputes) {
  World world({.num_blocks = 100},
              {.max_num_batched_tokens = 64, .max_prefill_tokens = 32, .watermark = 0});
  world.Add({.prompt = TokenRange(4, 9'000), .num_outputs = 99});
  world.Step();
  const SequenceId first = world.Add({.prompt = TokenRange(40)});
  const SequenceId second = world.Add({.prompt = TokenRange(40)});
  const SequenceId third = world.Add({.prompt = TokenRange(40)});
  world.Step();
  ASSERT_TRUE(world.Ran(first));
  world.scheduler().Cancel(first);
  world.Step();
  // Two blocks are cached; they have nothing to wait for.
  EXPECT_EQ(world.cached_tokens().at(second), 32);
  EXPECT_EQ(world.cached_tokens().at(third), 32);
  world.RunToTheEnd();
}

}  // namespace
}  // namespace quire::scheduler
