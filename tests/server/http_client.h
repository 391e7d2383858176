// A blocking HTTP client for tests: plain sockets on loopback, so that it can also misbehave.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::server {

struct HttpAnswer {
  int status = 0;
  std::string head;  // Status line and headers.
  std::string body;
};

// One TCP connection. Every wait is bounded by a few seconds.
class HttpConnection {
 public:
  explicit HttpConnection(std::int32_t port);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  bool Send(std::string_view bytes);
  // The next answer by its Content-Length; unset when the server closed the connection instead.
  std::optional<HttpAnswer> Read(bool head_only = false);
  // The next `count` bytes, whatever they are; unset when the server closed or said nothing more.
  std::optional<std::string> ReadBytes(std::size_t count);
  // Waits for the server to close; true when it did, after at most `seconds`.
  bool WaitForClose(int seconds);

 private:
  bool Fill(int seconds);
  int socket_ = -1;
  std::string buffer_;
};

// A whole GET on a connection of its own.
HttpAnswer HttpGet(std::int32_t port, std::string_view path);

}  // namespace quire::server
