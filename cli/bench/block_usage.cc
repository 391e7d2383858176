#include "cli/bench/block_usage.h"

#include <algorithm>

#include "base/clock.h"

namespace quire::cli::bench {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(20);

std::int64_t Reserved(const block_manager::BlockStats& blocks) {
  return blocks.active + blocks.leased;
}

std::int64_t Useful(const block_manager::BlockStats& blocks) {
  // Only full blocks are leased.
  return blocks.useful_slots + blocks.leased * blocks.block_size;
}

std::int64_t ComputedTokens(const scheduler::SchedulerStats& stats) {
  return stats.scheduled_prefill_tokens + stats.scheduled_decode_tokens;
}

}  // namespace

double BlockUsage::useful_share() const {
  const double slots = mean_reserved_blocks * block_size;
  return slots > 0 ? mean_useful_slots / slots : 0;
}

void BlockUsageSum::Add(const engine::EngineStats& stats) {
  if (stats.sequence_number <= last_.sequence_number) return;
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(stats.time - last_time_));
  seconds_ += seconds;
  reserved_block_seconds_ += seconds * static_cast<double>(Reserved(stats.blocks));
  useful_slot_seconds_ += seconds * static_cast<double>(Useful(stats.blocks));
  running_seconds_ += seconds * stats.scheduler.num_running;
  usage_.peak_reserved_blocks = std::max(usage_.peak_reserved_blocks, Reserved(stats.blocks));
  usage_.peak_running = std::max(usage_.peak_running, stats.scheduler.num_running);
  ++usage_.num_snapshots;
  usage_.num_missed_snapshots +=
      static_cast<std::int64_t>(stats.sequence_number - last_.sequence_number) - 1;
  last_time_ = std::max(last_time_, stats.time);
  last_ = stats;
}

BlockUsage BlockUsageSum::Result() const {
  BlockUsage usage = usage_;
  usage.capacity = last_.blocks.capacity;
  usage.block_size = last_.blocks.block_size;
  if (seconds_ > 0) {
    usage.mean_reserved_blocks = reserved_block_seconds_ / seconds_;
    usage.mean_useful_slots = useful_slot_seconds_ / seconds_;
    usage.mean_running = running_seconds_ / seconds_;
  }
  const scheduler::SchedulerStats& before = before_.scheduler;
  const scheduler::SchedulerStats& after = last_.scheduler;
  usage.computed_tokens = ComputedTokens(after) - ComputedTokens(before);
  usage.prefix_hit_tokens = after.prefix_hit_tokens - before.prefix_hit_tokens;
  usage.preemptions = after.num_preemptions - before.num_preemptions;
  usage.recomputed_tokens = after.recomputed_tokens - before.recomputed_tokens;
  usage.evictions = last_.blocks.evictions - before_.blocks.evictions;
  return usage;
}

BlockUsageWatch::BlockUsageWatch(const engine::Engine& engine)
    : engine_(engine), sum_(*engine.stats(), Clock::Real().Now()), thread_([this] { Run(); }) {}

BlockUsageWatch::~BlockUsageWatch() { Join(); }

BlockUsage BlockUsageWatch::Stop() {
  Join();
  sum_.Add(*engine_.stats());
  BlockUsage usage = sum_.Result();
  usage.bytes_per_block = engine_.kv_geometry().bytes_per_block();
  return usage;
}

void BlockUsageWatch::Join() {
  if (!thread_.joinable()) return;
  stop_.Notify();
  thread_.join();
}

void BlockUsageWatch::Run() {
  std::uint64_t seen = engine_.stats()->sequence_number;
  while (!stop_.HasBeenNotified()) {
    const auto stats = engine_.WaitForStats(seen, kLookEvery);
    sum_.Add(*stats);
    seen = stats->sequence_number;
  }
}

}  // namespace quire::cli::bench
