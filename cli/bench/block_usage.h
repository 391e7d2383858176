// How much of the KV pool an engine in this process holds while a load runs, and for what.
//
// The engine publishes a snapshot after every step; each counts for the time since the one before
// it, so that means are over time, not over steps. What a request holds in its last step only is
// already back in the snapshot after it.
#pragma once

#include <cstdint>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "engine/engine.h"

namespace quire::cli::bench {

struct BlockUsage {
  std::int64_t capacity = 0;  // Blocks.
  std::int32_t block_size = 0;
  std::int64_t bytes_per_block = 0;
  // Reserved: held by requests, or leased by sessions. Cached blocks that anybody may have count as
  // free.
  double mean_reserved_blocks = 0;
  std::int64_t peak_reserved_blocks = 0;
  // Useful: token slots of reserved blocks that hold a computed token, once however often shared.
  double mean_useful_slots = 0;
  double mean_running = 0;
  std::int32_t peak_running = 0;

  std::int64_t computed_tokens = 0;  // Prefill and decode.
  std::int64_t prefix_hit_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t recomputed_tokens = 0;
  std::int64_t evictions = 0;
  std::int64_t num_snapshots = 0;
  std::int64_t num_missed_snapshots = 0;  // Published faster than they could be read.

  double useful_share() const;  // Of the reserved slots, over time; 0 if none were reserved.
  double mean_reserved_bytes() const { return mean_reserved_blocks * double(bytes_per_block); }
  double mean_useful_bytes() const {
    return mean_useful_slots * double(bytes_per_block) / block_size;
  }
};

// Sums up snapshots.
class BlockUsageSum {
 public:
  // `before`: the newest snapshot at `start`.
  BlockUsageSum(const engine::EngineStats& before, absl::Time start)
      : before_(before), last_(before), last_time_(start) {}

  // Snapshots that were added before are ignored. REQUIRES: ascending.
  void Add(const engine::EngineStats& stats);
  BlockUsage Result() const;

 private:
  const engine::EngineStats before_;
  engine::EngineStats last_;
  absl::Time last_time_;
  double seconds_ = 0;
  double reserved_block_seconds_ = 0, useful_slot_seconds_ = 0, running_seconds_ = 0;
  BlockUsage usage_;
};

// Sums up what `engine`, which must outlive it, publishes from now on.
class BlockUsageWatch {
 public:
  explicit BlockUsageWatch(const engine::Engine& engine);
  ~BlockUsageWatch();
  // Ends the watch.
  BlockUsage Stop();

 private:
  void Run();
  void Join();

  const engine::Engine& engine_;
  BlockUsageSum sum_;  // The thread's, while it runs.
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace quire::cli::bench
