#include "tests/server/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace quire::server {

HttpConnection::HttpConnection(std::int32_t port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
}

HttpConnection::~HttpConnection() { close(socket_); }

bool HttpConnection::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool HttpConnection::Fill(int seconds) {
  pollfd waiting = {.fd = socket_, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, seconds * 1000) <= 0) return false;
  char bytes[4096];
  const ssize_t got = recv(socket_, bytes, sizeof(bytes), 0);
  if (got <= 0) return false;
  buffer_.append(bytes, static_cast<std::size_t>(got));
  return true;
}

std::optional<HttpAnswer> HttpConnection::Read(bool head_only) {
  HttpAnswer answer;
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!Fill(10)) return std::nullopt;
  }
  answer.head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  answer.status = std::stoi(answer.head.substr(answer.head.find(' ') + 1));
  const std::string key = "\r\nContent-Length: ";
  const auto at = answer.head.find(key);
  const std::size_t length =
      at == std::string::npos || head_only ? 0 : std::stoul(answer.head.substr(at + key.size()));
  while (buffer_.size() < length) {
    if (!Fill(10)) return std::nullopt;
  }
  answer.body = buffer_.substr(0, length);
  buffer_.erase(0, length);
  return answer;
}

std::optional<std::string> HttpConnection::ReadBytes(std::size_t count) {
  while (buffer_.size() < count) {
    if (!Fill(10)) return std::nullopt;
  }
  std::string out = buffer_.substr(0, count);
  buffer_.erase(0, count);
  return out;
}

bool HttpConnection::WaitForClose(int seconds) {
  pollfd waiting = {.fd = socket_, .events = POLLIN, .revents = 0};
  while (poll(&waiting, 1, seconds * 1000) > 0) {
    char bytes[4096];
    if (recv(socket_, bytes, sizeof(bytes), 0) <= 0) return true;
  }
  return false;
}

HttpAnswer HttpGet(std::int32_t port, std::string_view path) {
  HttpConnection connection(port);
  connection.Send("GET " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto answer = connection.Read();
  EXPECT_TRUE(answer.has_value()) << path;
  return answer.value_or(HttpAnswer());
}

}  // namespace quire::server
