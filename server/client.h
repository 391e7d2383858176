// A client of quire.v1 for programs that hold many streams: one connection (or a few), one thread,
// callbacks. Used by `quire generate`, `chat`, `bench` and `top` with --server.
//
// Ownership: a Client outlives no call: its destructor cancels what is live and returns after the
// last `on_done`. Handles may outlive the client; cancelling through them is then a no-op.
// Thread: all methods may be called from any thread, those that return a Call also from callbacks.
// Callbacks run on the client's thread, one at a time; they must not block, nor call the blocking
// methods of the same client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "quire/v1/engine.pb.h"
#include "quire/v1/generation.pb.h"
#include "quire/v1/stats.pb.h"

namespace quire::server {

struct ClientOptions {
  std::string target;  // "HOST:PORT"; "[::1]:PORT" for IPv6.
  // Connections; calls take them in turn. A server limits the streams of one connection (4096 by
  // default); calls beyond that wait inside the client.
  std::int32_t num_connections = 1;
  absl::Duration connect_timeout = absl::Seconds(5);
  std::int64_t max_receive_bytes = 64 << 20;
};

struct CallOptions {
  absl::Duration timeout = absl::InfiniteDuration();  // Travels as the gRPC deadline.
  // A call that is refused with RESOURCE_EXHAUSTED before its first message is sent again after the
  // server's hint, for this long. Zero: never.
  absl::Duration retry_for = absl::ZeroDuration();
};

// How a call ended.
struct CallOutcome {
  absl::Status status;                        // Code and message as the server sent them.
  std::optional<absl::Duration> retry_after;  // The server's hint, with RESOURCE_EXHAUSTED.
  std::int32_t num_tries = 0;
};

// A live streaming call.
class Call {
 public:
  virtual ~Call() = default;
  // Ends the call with CANCELLED unless it has ended already; `on_done` still comes. Idempotent.
  virtual void Cancel() = 0;
};

class Client {
 public:
  // Connects every connection; UNAVAILABLE, naming the target, when that takes too long.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  ~Client();

  using OnResponse = std::function<void(const v1::GenerateResponse&)>;
  using OnStats = std::function<void(const v1::Stats&)>;
  using OnKvEvents = std::function<void(const v1::KvEventBatch&)>;
  using OnDone = std::function<void(const CallOutcome&)>;

  // Sends the request at once. `on_response` gets every message in order, then `on_done` comes
  // exactly once. Dropping the handle does not cancel.
  std::shared_ptr<Call> Generate(const v1::GenerateRequest& request, const CallOptions& options,
                                 OnResponse on_response, OnDone on_done);
  std::shared_ptr<Call> WatchStats(absl::Duration interval, OnStats on_stats, OnDone on_done);
  std::shared_ptr<Call> SubscribeKvEvents(OnKvEvents on_events, OnDone on_done);

  // The same, waiting for the end.
  CallOutcome GenerateAndWait(const v1::GenerateRequest& request, const CallOptions& options,
                              OnResponse on_response);

  // Unary calls; they wait for the answer, kDefaultTimeout unless said otherwise.
  static constexpr absl::Duration kDefaultTimeout = absl::Seconds(10);
  // Never retried, whatever the options say.
  absl::StatusOr<v1::GenerateUnaryResponse> GenerateUnary(const v1::GenerateRequest& request,
                                                          const CallOptions& options);
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request);
  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo();
  absl::StatusOr<v1::GetModelInfoResponse> GetModelInfo();
  absl::Status Abort(const std::vector<std::string>& request_ids);
  absl::StatusOr<std::int64_t> ResetPrefixCache();  // Blocks that became free.
  // Whether there was such a session.
  absl::StatusOr<bool> EndSession(const std::string& session_id, const std::string& cache_salt,
                                  absl::Duration timeout = kDefaultTimeout);
  absl::StatusOr<bool> Drain(absl::Duration timeout);  // True: everything ended in time.
  absl::StatusOr<v1::Stats> GetStats();
  absl::StatusOr<v1::GetBlockMapResponse> GetBlockMap();

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
