#include "server/stats_labels.h"

#include <algorithm>

namespace quire::server {

LabelledCounts EvictionsByReason(const block_manager::BlockStats& stats) {
  return {{"cached", stats.evictions - stats.evictions_leased},
          {"leased", stats.evictions_leased},
          {"reset", stats.dropped_by_reset}};
}

LabelledCounts HitTokensBySource(const scheduler::SchedulerStats& stats) {
  return {{"first_time", stats.prefix_hit_tokens - stats.prefix_hit_tokens_session -
                             stats.prefix_hit_tokens_in_flight},
          {"after_preemption", stats.prefix_hit_tokens_after_preemption},
          {"session", stats.prefix_hit_tokens_session},
          {"fork", stats.fork_shared_tokens},
          {"in_flight", stats.prefix_hit_tokens_in_flight}};
}

LabelledCounts MissTokensByReason(const scheduler::SchedulerStats& stats) {
  return {{"never_seen", stats.prefix_misses.never_seen},
          {"evicted", stats.prefix_misses.evicted},
          {"other_salt", stats.prefix_misses.other_salt},
          {"partial_block", stats.prefix_misses.partial_block},
          {"not_finished_yet", stats.prefix_misses.not_finished},
          {"bypassed", stats.prefix_misses.bypassed}};
}

LabelledCounts WaitingByReason(const scheduler::SchedulerStats& stats) {
  const scheduler::WaitingBecause& waiting = stats.waiting_because;
  return {{"slots", waiting.slots},         {"blocks", waiting.blocks},
          {"watermark", waiting.watermark}, {"prefix_in_flight", waiting.prefix_in_flight},
          {"turn", waiting.turn},           {"budget", waiting.budget}};
}

double OldestWaitingSeconds(const engine::EngineStats& stats) {
  const absl::Time arrival = stats.scheduler.oldest_waiting_arrival;
  if (arrival == absl::InfiniteFuture()) return 0;
  return std::max(0.0, absl::ToDoubleSeconds(stats.time - arrival));
}

}  // namespace quire::server
