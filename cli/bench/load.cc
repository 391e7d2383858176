#include "cli/bench/load.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace quire::cli::bench {
namespace {

template <class Items>
auto& At(Items& items, std::int32_t index) {
  return items[static_cast<std::size_t>(index)];
}

class LoadRun {
 public:
  LoadRun(const LoadOptions& options, LoadTarget& target) : options_(options), target_(target) {
    const auto num_requests = static_cast<std::size_t>(options.num_requests);
    result_.records.resize(num_requests);
    followers_.resize(num_requests);
    for (std::int32_t i = 0; i < options.num_requests; ++i) {
      const std::int32_t follows = options.follows.empty() ? kNoRequest : At(options.follows, i);
      (follows == kNoRequest ? ready_ : At(followers_, follows)).push_back(i);
    }
    result_.start = result_.end = target.Now();
  }

  bool done() const { return num_done_ == options_.num_requests; }
  std::int32_t num_done() const { return num_done_; }
  LoadResult TakeResult() { return std::move(result_); }

  // Sends everything that is due and allowed; returns when the next request is due.
  absl::Time SendDue() {
    while (!ready_.empty()) {
      if (options_.max_concurrency > 0 && in_flight_ >= options_.max_concurrency) break;
      const absl::Time now = target_.Now();
      const std::int32_t request = ready_.front();
      const absl::Time due =
          options_.arrivals.empty() ? now : result_.start + At(options_.arrivals, request);
      if (due > now) return due;
      ready_.pop_front();
      RequestRecord& record = At(result_.records, request);
      record.due = due;
      record.sent = now;
      ++in_flight_;
      result_.max_concurrent_requests = std::max(result_.max_concurrent_requests, in_flight_);
      target_.Send(request);
    }
    return absl::InfiniteFuture();
  }

  void Apply(const LoadEvent& event) {
    RequestRecord& record = At(result_.records, event.request);
    switch (event.kind) {
      case LoadEvent::Kind::kTokens:
        record.arrivals.push_back({event.time, event.num_tokens});
        break;
      case LoadEvent::Kind::kFinished:
        record.finished = true;
        record.prompt_tokens = event.prompt_tokens;
        record.cached_tokens = event.cached_tokens;
        record.completion_tokens = event.completion_tokens;
        break;
      case LoadEvent::Kind::kDone:
        record.done = event.time;
        record.status = event.status;
        result_.end = std::max(result_.end, event.time);
        --in_flight_;
        ++num_done_;
        for (const std::int32_t next : At(followers_, event.request)) ready_.push_back(next);
        break;
    }
  }

 private:
  const LoadOptions& options_;
  LoadTarget& target_;
  LoadResult result_;
  std::deque<std::int32_t> ready_;  // To be sent, in this order.
  std::vector<std::deque<std::int32_t>> followers_;
  std::int32_t num_done_ = 0;
  std::int32_t in_flight_ = 0;
};

}  // namespace

LoadResult RunLoad(const LoadOptions& options, LoadTarget& target,
                   const std::function<void(std::int32_t done)>& on_progress) {
  LoadRun run(options, target);
  while (!run.done()) {
    const absl::Time next_due = run.SendDue();
    for (const LoadEvent& event : target.WaitUntil(next_due)) run.Apply(event);
    if (on_progress) on_progress(run.num_done());
  }
  return run.TakeResult();
}

}  // namespace quire::cli::bench
