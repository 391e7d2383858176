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

constexpr SchedulerOptions kOptions{.max_num_seqs = 32, .max_prefill_tokens = 64, .watermark = 0};

TEST(PrefixesInFlight, SixteenRequestsWithOneNewPrefixComputeItOnce) {
  World world({.num_blocks = 200}, kOptions);
  const std::vector<TokenId> prefix = TokenRange(640);
  world.Add({.prompt = TokenRange(4, 9'000), .num_outputs = 40});  // So that chunks are 64 tokens.
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

// The one that is awaited gets one token per step, 64 in all.
TEST(PrefixesInFlight, TheWaitIsBoundedAndCounted) {
  World world({.num_blocks = 100},
              {.max_prefill_tokens = 1, .watermark = 0, .max_in_flight_steps = 10});
  world.Add({.prompt = TokenRange(4, 9'000), .num_outputs = 200});
  world.Step();
  world.Add({.prompt = TokenRange(65)});
  world.Step();
  const SequenceId waiter = world.Add({.prompt = TokenRange(65)});
  // Its turn at the single prefill token comes when the other is done; it waits no longer for that.
  world.Steps(1);
  EXPECT_EQ(world.scheduler().stats().in_flight_waits, 0);  // The budget was spent before.
  world.RunToTheEnd();
  EXPECT_TRUE(world.Finished(waiter));

  World other({.num_blocks = 100}, {.max_num_batched_tokens = 64,
                                    .max_prefill_tokens = 8,
                                    .watermark = 0,
                                    .max_in_flight_steps = 3});
  other.Add({.prompt = TokenRange(4, 9'000), .num_outputs = 200});
  other.Step();
  other.Add({.prompt = TokenRange(65)});
  other.Step();
  EXPECT_EQ(other.scheduler().stats().in_flight_waits, 0);
}

TEST(PrefixesInFlight, FindsTheLongestVerifiedPrefix) {
  block_manager::BlockManager blocks({.num_blocks = 16, .block_size = 4});
  const auto sequence = [&](std::vector<TokenId> tokens, std::string_view salt = "",
                            bool running = true) {
    Sequence s{.id = SequenceId{1},
               .tokens = std::move(tokens),
               .first_block_hash = 7,  // Collides for all: tokens and salts are compared.
               .blocks = blocks.NewSequence(block_manager::CacheSalt::ForRequest(salt))};
    s.running = running;
    return s;
  };
  const Sequence same4 = sequence(Join(TokenRange(5), TokenRange(9, 100)));
  const Sequence same8 = sequence(Join(TokenRange(11), TokenRange(9, 200)));
  const Sequence salted = sequence(TokenRange(20), "salt");
  const Sequence other = sequence(TokenRange(20, 500));
  const Sequence urgent = [&] {
    Sequence s = sequence(TokenRange(20));
    s.priority = 1;  // Less urgent than the one that waits.
    return s;
  }();
  const Sequence waiting = sequence(TokenRange(13), "", false);

  PrefixesInFlight prefixes(4);
  EXPECT_EQ(prefixes.Find(waiting).computing, nullptr);
  for (const Sequence* s : {&same8, &same4, &salted, &other, &urgent}) prefixes.Add(s);
  EXPECT_EQ(prefixes.Find(waiting).computing, &same8);
  EXPECT_EQ(prefixes.Find(waiting).num_tokens, 8);

  // Of a whole prompt one token at least is left to compute: 12 of 13, but 8 of 12 tokens.
  const Sequence twin = sequence(TokenRange(13));
  prefixes.Add(&twin);
  EXPECT_EQ(prefixes.Find(waiting).num_tokens, 12);
  EXPECT_EQ(prefixes.Find(sequence(TokenRange(12), "", false)).num_tokens, 8);

  prefixes.Clear();
  EXPECT_EQ(prefixes.Find(waiting).computing, nullptr);
}

TEST(PrefixesInFlight, WhatIsComputedIsNotInFlight) {
  block_manager::BlockManager blocks({.num_blocks = 16, .block_size = 4});
  Sequence computing{.id = SequenceId{1},
                     .tokens = TokenRange(11),
                     .first_block_hash = 7,
                     .blocks = blocks.NewSequence({})};
  computing.running = true;
  const Sequence waiting{.id = SequenceId{2},
                         .tokens = Join(TokenRange(8), TokenRange(9, 100)),
                         .first_block_hash = 7,
                         .blocks = blocks.NewSequence({})};
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
