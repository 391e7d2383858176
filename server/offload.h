// A few threads for calls that may take a while (encoding a long text, waiting for the engine
// thread), so that gRPC's own threads never do.
//
// Thread: any. The destructor runs what is queued, then joins; jobs must end in bounded time.
#pragma once

#include <cstddef>
#include <deque>

#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace quire::server {

class Offload {
 public:
  // Threads start when they are first needed.
  Offload(std::size_t max_threads, std::size_t max_queued);
  ~Offload();

  // RESOURCE_EXHAUSTED when `max_queued` jobs wait already.
  absl::Status Run(absl::AnyInvocable<void()> job);

 private:
  void Work();

  const std::size_t max_threads_;
  const std::size_t max_queued_;
  absl::Mutex mutex_;
  std::deque<absl::AnyInvocable<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire::server
