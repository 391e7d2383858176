#include "cli/bench/block_usage.h"

namespace quire::cli::bench {
namespace {

std::int64_t ComputedTokens(const scheduler::SchedulerStats& stats) {
  return stats.scheduled_prefill_tokens + stats.scheduled_decode_tokens;
}

}  // namespace

double BlockUsage::useful_share() const {
  const double slots = mean_reserved_blocks * block_size;
  return slots > 0 ? mean_useful_slots / slots : 0;
}

double BlockUsage::mean_reserved_bytes() const {
  return mean_reserved_blocks * static_cast<double>(bytes_per_block);
}

double BlockUsage::mean_useful_bytes() const { return useful_share() * mean_reserved_bytes(); }

BlockUsage UsageBetween(const engine::EngineStats& before, const engine::EngineStats& after,
                        const KvGeometry& geometry) {
  const scheduler::SchedulerStats& first = before.scheduler;
  const scheduler::SchedulerStats& last = after.scheduler;
  BlockUsage usage{.capacity = after.blocks.capacity,
                   .block_size = after.blocks.block_size,
                   .bytes_per_block = geometry.bytes_per_block(),
                   .peak_active_blocks = after.blocks.peak_active,
                   .computed_tokens = ComputedTokens(last) - ComputedTokens(first),
                   .prefix_hit_tokens = last.prefix_hit_tokens - first.prefix_hit_tokens,
                   .preemptions = last.num_preemptions - first.num_preemptions,
                   .recomputed_tokens = last.recomputed_tokens - first.recomputed_tokens,
                   .evictions = after.blocks.evictions - before.blocks.evictions};
  const double seconds = after.step_time.sum - before.step_time.sum;
  if (seconds > 0) {
    usage.mean_reserved_blocks =
        (after.reserved_block_seconds - before.reserved_block_seconds) / seconds;
    usage.mean_useful_slots = (after.useful_slot_seconds - before.useful_slot_seconds) / seconds;
    usage.mean_batch = (after.batch_seconds - before.batch_seconds) / seconds;
  }
  return usage;
}

}  // namespace quire::cli::bench
