#include "engine/stats_board.h"

#include <utility>

namespace quire::engine {

StatsBoard::StatsBoard(EngineStats first)
    : newest_(std::make_shared<const EngineStats>(std::move(first))) {}

std::shared_ptr<const EngineStats> StatsBoard::Read() const {
  absl::MutexLock lock(&mutex_);
  return newest_;
}

std::shared_ptr<const EngineStats> StatsBoard::WaitNewer(std::uint64_t sequence_number,
                                                         absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  const auto newer = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return newest_->sequence_number > sequence_number;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&newer), timeout);
  return newest_;
}

void StatsBoard::Publish(EngineStats stats) {
  auto next = std::make_shared<EngineStats>(std::move(stats));
  std::shared_ptr<const EngineStats> previous;  // Destroyed outside the lock.
  absl::MutexLock lock(&mutex_);
  next->sequence_number = newest_->sequence_number + 1;
  previous = std::exchange(newest_, std::move(next));
}

}  // namespace quire::engine
