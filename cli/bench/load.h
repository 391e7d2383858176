// Sends the requests of a load test and records what came of each.
//
// An open loop sends every request at its own moment, whatever the server does, and measures from
// that moment: a stall of the server, or of this tool, shows in the latencies of all requests that
// fell due meanwhile (no coordinated omission). A closed loop keeps a number of requests in flight;
// its requests are due when they are sent.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace quire::cli::bench {

// Something that happened to a request.
struct LoadEvent {
  enum class Kind {
    kTokens,    // A message with `num_tokens` new tokens.
    kFinished,  // The answer is complete: the token counts, from the server's usage.
    kDone,      // The call has ended with `status`; nothing follows.
  };
  Kind kind = Kind::kTokens;
  std::int32_t request = 0;
  absl::Time time = {};
  std::int32_t num_tokens = 0;
  std::int32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  absl::Status status = {};
};

// What is put under load: a server, or a simulated one in tests, with its own clock.
class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  virtual absl::Time Now() = 0;
  // Starts request `request`; does not wait.
  virtual void Send(std::int32_t request) = 0;
  // Waits until something happens, at most until `until`. Events of one request come in order, with
  // the time at which they reached this process.
  virtual std::vector<LoadEvent> WaitUntil(absl::Time until) = 0;
};

inline constexpr std::int32_t kNoRequest = -1;

struct LoadOptions {
  std::int32_t num_requests = 0;
  // Open loop: when each request is due, counted from the start, ascending. Empty: closed loop.
  std::vector<absl::Duration> arrivals = {};
  // Closed loop only: the earlier request that must be done before each is due, or kNoRequest. Such
  // requests queue up behind those that wait already. Empty: none.
  std::vector<std::int32_t> follows = {};
  // Requests in flight at most; 0: no limit. An open loop with a limit holds back what is due, and
  // still measures it from when it was due.
  std::int32_t max_concurrency = 0;
};

struct TokenArrival {
  absl::Time time;
  std::int32_t num_tokens = 0;
};

struct RequestRecord {
  absl::Time due, sent, done;
  std::vector<TokenArrival> arrivals;
  std::int32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  bool finished = false;  // A kFinished came.
  absl::Status status;

  // Ended well, complete and with at least one token: anything else is a failure, and its times say
  // nothing.
  bool succeeded() const {
    return status.ok() && finished && completion_tokens > 0 && !arrivals.empty();
  }
};

struct LoadResult {
  absl::Time start, end;
  std::vector<RequestRecord> records;  // [num_requests]
  std::int32_t max_concurrent_requests = 0;
};

// Returns when every request is done. `on_progress(done)` is called now and then; may be empty.
LoadResult RunLoad(const LoadOptions& options, LoadTarget& target,
                   const std::function<void(std::int32_t done)>& on_progress);

}  // namespace quire::cli::bench
