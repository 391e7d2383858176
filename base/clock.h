// Time as a dependency, so that tests decide what time it is and never sleep.
#pragma once

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace quire {

// Thread: every method may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  // Never decreases; unrelated to the calendar.
  virtual absl::Time Now() const = 0;
  // The process-wide steady clock.
  static Clock& Real();
};

// A clock that moves only when told to.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}
  absl::Time Now() const override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }
  void Advance(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    now_ += by;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace quire
