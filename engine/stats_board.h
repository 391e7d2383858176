// The newest published snapshot, and those who wait for the next.
//
// Thread: any. A snapshot is immutable once published.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/stats.h"

namespace quire::engine {

class StatsBoard {
 public:
  explicit StatsBoard(EngineStats first);
  std::shared_ptr<const EngineStats> Read() const;
  std::shared_ptr<const EngineStats> WaitNewer(std::uint64_t sequence_number,
                                               absl::Duration timeout) const;
  // Gives `stats` the next sequence number.
  void Publish(EngineStats stats);

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const EngineStats> newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace quire::engine
