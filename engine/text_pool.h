// The thread that encodes prompts, so that neither callers nor the engine thread wait for it.
//
// Big jobs stand in a lane of their own: small ones go first, but a big one is passed at most
// `kMaxPasses` times. A small job therefore waits for one big job at most.
//
// Thread: Run from any thread; jobs run on the pool's thread, one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace quire::engine {

class TextPool {
 public:
  static constexpr std::int64_t kBigJobBytes = 64 << 10;
  static constexpr std::int32_t kMaxPasses = 16;

  TextPool();
  ~TextPool();  // Stop().

  // Queues `job`, which works on about `bytes` bytes of text. Dropped once stopped.
  void Run(std::int64_t bytes, std::function<void()> job);

  // Waits for the running job, drops the queued ones and ends the thread. Idempotent.
  void Stop();

 private:
  void Loop();
  bool Awake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ || !small_.empty() || !big_.empty();
  }
  std::function<void()> PopLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::deque<std::function<void()>> small_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> big_ ABSL_GUARDED_BY(mutex_);
  std::int32_t passes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire::engine
