// Counts that are told apart by cause, under the names that GetStats and /metrics both give them.
// Names are API.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/stats.h"

namespace quire::server {

using LabelledCounts = std::vector<std::pair<std::string_view, std::int64_t>>;

// Cached blocks that lost their content: to make room, out of a session's lease to make room, and
// by ResetPrefixCache.
LabelledCounts EvictionsByReason(const block_manager::BlockStats& stats);

// Tokens that were not computed, by what they were found by.
LabelledCounts HitTokensBySource(const scheduler::SchedulerStats& stats);

// Prompt tokens that were computed, by why they were not cached.
LabelledCounts MissTokensByReason(const scheduler::SchedulerStats& stats);

// Waiting branches by what they wait for.
LabelledCounts WaitingByReason(const scheduler::SchedulerStats& stats);

// Age of the oldest waiting request; 0 when none waits.
double OldestWaitingSeconds(const engine::EngineStats& stats);

}  // namespace quire::server
