#include "server/timer_thread.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace quire::server {

TimerThread::TimerThread() : thread_([this] { Run(); }) {}

TimerThread::~TimerThread() { Stop(); }

void TimerThread::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void TimerThread::AddPeriodic(absl::Duration period, std::function<bool()> task) {
  absl::MutexLock lock(&mutex_);
  tasks_.emplace(Clock::Real().Now() + period, Task{.period = period, .run = std::move(task)});
  changed_.Signal();
}

void TimerThread::Run() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    if (tasks_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    const absl::Time now = Clock::Real().Now();
    const absl::Time due = tasks_.begin()->first;
    if (now < due) {
      changed_.WaitWithTimeout(&mutex_, due - now);
      continue;
    }
    Task task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    mutex_.Unlock();
    const bool again = task.run();
    mutex_.Lock();
    if (again) {
      const absl::Time next = std::max(due + task.period, Clock::Real().Now());
      tasks_.emplace(next, std::move(task));
    }
  }
}

}  // namespace quire::server
