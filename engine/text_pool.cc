#include "engine/text_pool.h"

#include <utility>

namespace quire::engine {

TextPool::TextPool() : thread_([this] { Loop(); }) {}

TextPool::~TextPool() { Stop(); }

void TextPool::Run(std::int64_t bytes, std::function<void()> job) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return;
  (bytes > kBigJobBytes ? big_ : small_).push_back(std::move(job));
}

void TextPool::Stop() {
  std::deque<std::function<void()>> dropped_small, dropped_big;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    dropped_small.swap(small_);
    dropped_big.swap(big_);
  }
  if (thread_.joinable()) thread_.join();
}

std::function<void()> TextPool::PopLocked() {
  const bool take_big = small_.empty() || (!big_.empty() && passes_ >= kMaxPasses);
  passes_ = take_big || big_.empty() ? 0 : passes_ + 1;
  std::deque<std::function<void()>>& lane = take_big ? big_ : small_;
  std::function<void()> job = std::move(lane.front());
  lane.pop_front();
  return job;
}

void TextPool::Loop() {
  while (true) {
    std::function<void()> job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &TextPool::Awake));
      if (stopped_) return;
      job = PopLocked();
    }
    job();
  }
}

}  // namespace quire::engine
