// A simulated server with its own clock: every request runs a script of events, and the whole
// server may freeze for a while. Nothing waits for real.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "cli/bench/load.h"

namespace quire::cli::bench {

class FakeTarget final : public LoadTarget {
 public:
  // What a request answers: events with `time` counted from its sending (from absl::UnixEpoch()).
  using Script = std::function<std::vector<LoadEvent>(std::int32_t request)>;
  explicit FakeTarget(Script script) : script_(std::move(script)) {}

  // Whatever the server would do in [from, until) happens at `until`.
  void Freeze(absl::Time from, absl::Time until) {
    freeze_from_ = from;
    freeze_until_ = until;
  }

  absl::Time Now() override { return now_; }
  void Send(std::int32_t request) override {
    for (LoadEvent event : script_(request)) {
      event.request = request;
      event.time = Thawed(now_ + (event.time - absl::UnixEpoch()));
      queue_.emplace(event.time, event);
    }
    sent_at.push_back(now_);
  }
  std::vector<LoadEvent> WaitUntil(absl::Time until) override {
    if (queue_.empty() || queue_.begin()->first > until) {
      now_ = until;
      return {};
    }
    now_ = queue_.begin()->first;
    std::vector<LoadEvent> events;
    while (!queue_.empty() && queue_.begin()->first == now_) {
      events.push_back(queue_.begin()->second);
      queue_.erase(queue_.begin());
    }
    return events;
  }

  std::vector<absl::Time> sent_at;

 private:
  absl::Time Thawed(absl::Time time) const {
    return time >= freeze_from_ && time < freeze_until_ ? freeze_until_ : time;
  }

  const Script script_;
  absl::Time now_ = absl::UnixEpoch();
  absl::Time freeze_from_ = absl::InfiniteFuture();
  absl::Time freeze_until_ = absl::InfiniteFuture();
  std::multimap<absl::Time, LoadEvent> queue_;
};

inline LoadEvent TokensAt(int ms, int num_tokens) {
  LoadEvent event;
  event.kind = LoadEvent::Kind::kTokens;
  event.time = absl::UnixEpoch() + absl::Milliseconds(ms);
  event.num_tokens = num_tokens;
  return event;
}

inline LoadEvent FinishedAt(int ms, int completion_tokens) {
  LoadEvent event;
  event.kind = LoadEvent::Kind::kFinished;
  event.time = absl::UnixEpoch() + absl::Milliseconds(ms);
  event.prompt_tokens = 10;
  event.cached_tokens = 4;
  event.completion_tokens = completion_tokens;
  return event;
}

inline LoadEvent DoneAt(int ms, absl::Status status = absl::OkStatus()) {
  LoadEvent event;
  event.kind = LoadEvent::Kind::kDone;
  event.time = absl::UnixEpoch() + absl::Milliseconds(ms);
  event.status = std::move(status);
  return event;
}

// An answer of `tokens` tokens, the first after `first_ms`, then one every `gap_ms`.
inline std::vector<LoadEvent> Answer(int first_ms, int gap_ms, int tokens) {
  std::vector<LoadEvent> events;
  for (int i = 0; i < tokens; ++i) events.push_back(TokensAt(first_ms + i * gap_ms, 1));
  const int end = first_ms + (tokens - 1) * gap_ms;
  events.push_back(FinishedAt(end, tokens));
  events.push_back(DoneAt(end));
  return events;
}

}  // namespace quire::cli::bench
