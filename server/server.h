// The network side of `quire serve`: gRPC services, health, reflection and the HTTP port over one
// engine.
//
// Life: Start listens at once, so that a port in use is found before a model is loaded; until Serve
// the health answer is NOT_SERVING and every other call gets UNAVAILABLE. Then StartEngine with
// sink(), Serve, Shutdown, and only then may the engine go.
//
//   QUIRE_ASSIGN_OR_RETURN(auto server, Server::Start(options));
//   QUIRE_ASSIGN_OR_RETURN(auto host, engine::StartEngine(host_options, server->sink(), progress));
//   server->Serve(DescribeHost(*host, settings));
//   …                                      // until a signal
//   server->Shutdown(absl::Seconds(30));   // drains; then destroy `host`, then `server`.
//
// Thread: Start, Serve, Shutdown and the destructor on one thread; StopNow and the getters on any.
// Starts: one emitter, one timer and one HTTP thread, what gRPC keeps (about one per two cores),
// and at most 1 + 4 + 4 more for Tokenize, block maps and Drain when they are first called.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "quire/v1/engine.pb.h"

namespace quire::engine {
struct EngineHost;
}

namespace quire::server {

struct ServerOptions {
  // An IP address or "localhost"; anything but loopback needs insecure_listen.
  std::string host = "127.0.0.1";
  std::int32_t port = 50051;                     // 0: picks a free one.
  std::optional<std::int32_t> http_port = 8081;  // 0: picks a free one; unset: no HTTP port.
  bool insecure_listen = false;
  bool reflection = true;

  std::int64_t max_receive_bytes = 16 << 20;   // Of one request.
  std::int32_t max_concurrent_streams = 4096;  // Per connection.
  // A stream whose client leaves more tokens than this unread is cut with RESOURCE_EXHAUSTED. The
  // bound of what one slow reader can make the server hold: this many tokens twice (in the stream,
  // in the message being sent) and gRPC's own window.
  std::int64_t max_unread_tokens = 4096;
  // A stream that was cut may still be read for this long; then it is dropped.
  absl::Duration cut_grace = absl::Seconds(30);
  // When requests are live and no step has ended for this long, the engine counts as stuck: health
  // says so and their calls end with INTERNAL. Longer than any step may take.
  absl::Duration stuck_after = absl::Seconds(60);

  // Names the flag and its range.
  absl::Status Validate() const;
};

// An engine and what GetServerInfo and GetModelInfo say of it. `engine` is borrowed until Shutdown.
struct ServedModel {
  engine::Engine* engine = nullptr;
  v1::GetServerInfoResponse server_info;  // uptime_seconds is filled in per call.
  v1::GetModelInfoResponse model_info;
};

// The two answers out of what start-up decided. `settings`: every effective flag, by name.
ServedModel DescribeHost(const engine::EngineHost& host, const std::string& served_model_name,
                         const std::map<std::string, std::string>& settings);

class Server {
 public:
  // Listens. UNAVAILABLE names an address that is in use; INVALID_ARGUMENT names the bad option.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);
  ~Server();  // Shutdown with no grace, unless done.

  std::int32_t grpc_port() const;
  std::int32_t http_port() const;  // 0: none.

  // Where the engine sends its output: hands streams to the emitter thread.
  engine::OutputSink* sink();

  // Opens the doors. REQUIRES: called once; the engine was made with sink().
  void Serve(ServedModel model);

  // Health goes NOT_SERVING, new calls get UNAVAILABLE, live ones go on until they end or `grace`
  // has passed; the rest is aborted. Returns, at most about a second after that, when no thread of
  // the server touches the engine any more. Idempotent.
  void Shutdown(absl::Duration grace);
  // Ends the grace of a Shutdown in progress (a second signal).
  void StopNow();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
