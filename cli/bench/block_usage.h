// How much of the KV pool an engine in this process held while a load ran, and for what.
#pragma once

#include <cstdint>

#include "base/kv_geometry.h"
#include "engine/stats.h"

namespace quire::cli::bench {

// Means are over the time of steps.
struct BlockUsage {
  std::int64_t capacity = 0;  // Blocks.
  std::int32_t block_size = 0;
  std::int64_t bytes_per_block = 0;
  // Reserved: held by requests, or leased by sessions. Cached blocks that anybody may have count as
  // free.
  double mean_reserved_blocks = 0;
  // Useful: token slots of reserved blocks that hold a token which is or was computed, once however
  // often shared.
  double mean_useful_slots = 0;
  std::int64_t peak_active_blocks = 0;  // Held by requests, since the engine was started.
  double mean_batch = 0;                // Requests per step.

  std::int64_t computed_tokens = 0;  // Prefill and decode.
  std::int64_t prefix_hit_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t recomputed_tokens = 0;
  std::int64_t evictions = 0;

  double useful_share() const;  // Of the reserved slots; 0 if none were reserved.
  double mean_reserved_bytes() const;
  double mean_useful_bytes() const;
  std::int64_t peak_active_bytes() const { return peak_active_blocks * bytes_per_block; }
};

// Of what happened between two snapshots of one engine.
BlockUsage UsageBetween(const engine::EngineStats& before, const engine::EngineStats& after,
                        const KvGeometry& geometry);

}  // namespace quire::cli::bench
