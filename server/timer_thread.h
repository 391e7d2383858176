// A thread for the few things a server does by the clock: heartbeats, health checks, watchers.
//
// Thread: AddPeriodic from any thread, also from a task. Tasks run one at a time on the timer's
// thread and must be short.
#pragma once

#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace quire::server {

class TimerThread {
 public:
  TimerThread();
  ~TimerThread();

  // Runs `task` every `period`, the first time after one period, until it returns false. Periods
  // that were missed are skipped.
  void AddPeriodic(absl::Duration period, std::function<bool()> task);

  // Waits for the task that runs and drops the rest; what is added later never runs. Not from a
  // task. Idempotent; the destructor does the same.
  void Stop();

 private:
  struct Task {
    absl::Duration period;
    std::function<bool()> run;
  };
  void Run();

  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::multimap<absl::Time, Task> tasks_ ABSL_GUARDED_BY(mutex_);  // By when they are due.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire::server
