#include "cli/bench/block_usage.h"

#include <gtest/gtest.h>

namespace quire::cli::bench {
namespace {

// 4 KiB a block of 16 tokens.
constexpr KvGeometry kGeometry{.num_layers = 2,
                               .num_kv_heads = 2,
                               .k_dim = 16,
                               .v_dim = 16,
                               .block_size = 16,
                               .k_dtype = KvDtype::kF16,
                               .v_dtype = KvDtype::kF16};

engine::EngineStats Before() {
  engine::EngineStats stats;
  stats.blocks = {.capacity = 64, .block_size = 16, .evictions = 2, .peak_active = 3};
  stats.step_time.sum = 10;
  stats.reserved_block_seconds = 100;
  stats.useful_slot_seconds = 1000;
  stats.batch_seconds = 20;
  stats.scheduler.scheduled_prefill_tokens = 50;
  stats.scheduler.scheduled_decode_tokens = 5;
  stats.scheduler.prefix_hit_tokens = 16;
  stats.scheduler.num_preemptions = 1;
  stats.scheduler.recomputed_tokens = 7;
  return stats;
}

TEST(BlockUsage, IsWhatHappenedBetweenTwoSnapshots) {
  engine::EngineStats after = Before();
  after.blocks.evictions = 6;
  after.blocks.peak_active = 9;
  after.step_time.sum = 14;
  after.reserved_block_seconds = 132;  // 8 blocks for 4 seconds.
  after.useful_slot_seconds = 1384;    // 96 of their 128 slots.
  after.batch_seconds = 30;
  after.scheduler.scheduled_prefill_tokens = 90;
  after.scheduler.scheduled_decode_tokens = 15;
  after.scheduler.prefix_hit_tokens = 64;
  after.scheduler.num_preemptions = 4;
  after.scheduler.recomputed_tokens = 27;

  const BlockUsage usage = UsageBetween(Before(), after, kGeometry);
  EXPECT_EQ(usage.capacity, 64);
  EXPECT_EQ(usage.block_size, 16);
  EXPECT_EQ(usage.bytes_per_block, 4096);
  EXPECT_DOUBLE_EQ(usage.mean_reserved_blocks, 8);
  EXPECT_DOUBLE_EQ(usage.mean_useful_slots, 96);
  EXPECT_DOUBLE_EQ(usage.useful_share(), 0.75);
  EXPECT_DOUBLE_EQ(usage.mean_reserved_bytes(), 8 * 4096);
  EXPECT_DOUBLE_EQ(usage.mean_useful_bytes(), 6 * 4096);
  EXPECT_EQ(usage.peak_active_bytes(), 9 * 4096);
  EXPECT_DOUBLE_EQ(usage.mean_batch, 2.5);
  EXPECT_EQ(usage.computed_tokens, 50);
  EXPECT_EQ(usage.prefix_hit_tokens, 48);
  EXPECT_EQ(usage.preemptions, 3);
  EXPECT_EQ(usage.recomputed_tokens, 20);
  EXPECT_EQ(usage.evictions, 4);
}

TEST(BlockUsage, OfNothingIsZero) {
  const BlockUsage usage = UsageBetween(Before(), Before(), kGeometry);
  EXPECT_EQ(usage.computed_tokens, 0);
  EXPECT_EQ(usage.mean_reserved_blocks, 0);
  EXPECT_EQ(usage.useful_share(), 0);
  EXPECT_EQ(usage.mean_useful_bytes(), 0);
}

}  // namespace
}  // namespace quire::cli::bench
