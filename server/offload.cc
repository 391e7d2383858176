#include "server/offload.h"

#include <utility>

#include "base/status.h"

namespace quire::server {

Offload::Offload(std::size_t max_threads, std::size_t max_queued)
    : max_threads_(max_threads), max_queued_(max_queued) {}

Offload::~Offload() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  for (auto& thread : threads) thread.join();
}

absl::Status Offload::Run(absl::AnyInvocable<void()> job) {
  absl::MutexLock lock(&mutex_);
  if (jobs_.size() >= max_queued_) {
    return ResourceExhausted("{} calls of this kind are waiting already", jobs_.size());
  }
  jobs_.push_back(std::move(job));
  if (jobs_.size() > idle_ && threads_.size() < max_threads_) {
    threads_.emplace_back([this] { Work(); });
  }
  return absl::OkStatus();
}

void Offload::Work() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    ++idle_;
    mutex_.Await(absl::Condition(
        +[](Offload* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
          return self->stopping_ || !self->jobs_.empty();
        },
        this));
    --idle_;
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    mutex_.Unlock();
    job();
    mutex_.Lock();
  }
}

}  // namespace quire::server
