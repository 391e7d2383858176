// A small HTTP/1.1 server: one event-loop thread for all connections, never a thread each.
//
// Limits: connections, header and body bytes, time to send a request, idle time between requests;
// whoever exceeds one is answered with the fitting 4xx where possible and disconnected. Answers to
// requests are made by a handler on the event-loop thread, which must be quick.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace quire::server {

struct HttpOptions {
  std::string address = "127.0.0.1";
  std::int32_t port = 0;  // 0: picks a free one.
  std::size_t max_connections = 256;
  std::size_t max_header_bytes = 8 << 10;
  std::size_t max_body_bytes = 64 << 10;
  absl::Duration request_timeout = absl::Seconds(10);  // From first byte wanted to last byte sent.
  absl::Duration idle_timeout = absl::Seconds(60);     // Between two requests.
};

struct HttpRequest {
  std::string method;  // "GET"; HEAD arrives as GET.
  std::string path;    // Without the query.
  std::string query;
  std::string body;
};

struct HttpResponse {
  std::int32_t status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Listens and starts the thread. UNAVAILABLE names an address that is in use.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           Handler handler);
  ~HttpServer();  // Closes everything.

  std::int32_t port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
