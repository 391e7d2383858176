// Every live request and the count of all others: who may enter, who is where, how it ended.
//
// Queue caps are held here, on the caller's thread and before a prompt is encoded, so that a burst
// is refused for the price of a lock.
//
// Thread: any.
// Invariants: (1) received == queued + running + the sum of the outcomes, in every answer of
// counts(). (2) An id is in use from Reserve until Finish, or until an abort of it was asked for.
// (3) A request finishes once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/request_state.h"

namespace quire::engine {

enum class Outcome { kStop, kLength, kCancelled, kDeadlineExceeded, kRefused, kFailed };

// The outcome that an error status counts as.
Outcome OutcomeOf(const absl::Status& error);

struct RequestCounts {
  std::int64_t received = 0;
  std::int64_t queued = 0;
  std::int64_t running = 0;
  std::int64_t finished_stop = 0;
  std::int64_t finished_length = 0;
  std::int64_t cancelled = 0;
  std::int64_t deadline_exceeded = 0;
  std::int64_t refused = 0;
  std::int64_t failed = 0;
};

class RequestLedger {
 public:
  struct Limits {
    std::int32_t max_queued_requests = 0;  // Branches, not yet scheduled.
    std::int64_t max_queued_prompt_tokens = 0;
  };
  explicit RequestLedger(const Limits& limits) : limits_(limits) {}

  // Counts a request that was refused before it asked for a place.
  void CountRefused();

  // Takes a queue place for `request`: `branches` of it and `prompt_tokens` (an estimate while the
  // prompt is text). The refusal once closed, ALREADY_EXISTS when the id is in use,
  // RESOURCE_EXHAUSTED when a cap would be passed, which a request alone in the queue never does.
  // An error counts it as refused.
  absl::Status Reserve(const std::shared_ptr<Request>& request, std::int32_t branches,
                       std::int64_t prompt_tokens);

  // Replaces the estimate. False when the request has finished meanwhile.
  bool SetPromptTokens(const Request& request, std::int64_t prompt_tokens);

  // It was scheduled for the first time and leaves the queue.
  void Start(const Request& request);

  // It is over. False, and nothing changes, when it was over already.
  bool Finish(const Request& request, Outcome outcome);

  // What to send to the engine thread when `id` or `stream` is to be aborted: null when there is
  // nothing to abort or an abort is on its way. The id is free for another request at once.
  std::shared_ptr<Request> ClaimAbort(std::string_view id);
  std::shared_ptr<Request> ClaimAbort(const TokenStream& stream);

  bool IsLive(const Request& request) const;
  std::vector<std::shared_ptr<Request>> Live() const;
  RequestCounts counts() const;

  // Reserve refuses with `refusal` from now on. The first call counts.
  void Close(absl::Status refusal);
  bool closed() const;

  // Finished requests whose last message has been handed out. WaitUntilDelivered returns true as
  // soon as that holds for every request ever reserved, false after `timeout`.
  void Delivered(std::int64_t num_requests);
  bool WaitUntilDelivered(absl::Duration timeout) const;

 private:
  enum class Phase { kQueued, kRunning };
  struct Entry {
    std::shared_ptr<Request> request;
    Phase phase = Phase::kQueued;
    std::int32_t branches = 0;
    std::int64_t prompt_tokens = 0;
    bool abort_sent = false;
  };

  absl::Status CheckCaps(const std::string& id, std::int32_t branches,
                         std::int64_t prompt_tokens) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Request> ClaimLocked(const TokenStream& stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseId(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveQueue(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllDelivered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return undelivered_ == 0; }

  const Limits limits_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<const TokenStream*, Entry> live_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, const TokenStream*> by_id_ ABSL_GUARDED_BY(mutex_);
  RequestCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::int64_t queued_branches_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t queued_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t undelivered_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);  // Not OK: closed.
};

}  // namespace quire::engine
