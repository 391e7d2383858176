#include "cli/bench/load.h"

#include <algorithm>

namespace quire::cli::bench {
namespace {

class LoadRun {
 public:
  LoadRun(const LoadOptions& options, LoadTarget& target) : options_(options), target_(target) {
    result_.records.resize(static_cast<std::size_t>(options.num_requests));
    result_.start = result_.end = target.Now();
  }

  bool done() const { return num_done_ == options_.num_requests; }
  std::int32_t num_done() const { return num_done_; }
  LoadResult TakeResult() { return std::move(result_); }

  // Sends everything that is due and allowed; returns when the next request is due.
  absl::Time SendDue() {
    while (num_sent_ < options_.num_requests) {
      if (options_.max_concurrency > 0 && in_flight_ >= options_.max_concurrency) break;
      const absl::Time now = target_.Now();
      const absl::Time due = DueTime(now);
      if (due > now) return due;
      RequestRecord& record = result_.records[static_cast<std::size_t>(num_sent_)];
      record.due = due;
      record.sent = now;
      ++in_flight_;
      result_.max_concurrent_requests = std::max(result_.max_concurrent_requests, in_flight_);
      target_.Send(num_sent_++);
    }
    return absl::InfiniteFuture();
  }

  void Apply(const LoadEvent& event) {
    RequestRecord& record = result_.records[static_cast<std::size_t>(event.request)];
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
        break;
    }
  }

 private:
  absl::Time DueTime(absl::Time now) const {
    if (options_.arrivals.empty()) return now;
    return result_.start + options_.arrivals[static_cast<std::size_t>(num_sent_)];
  }

  const LoadOptions& options_;
  LoadTarget& target_;
  LoadResult result_;
  std::int32_t num_sent_ = 0;
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
