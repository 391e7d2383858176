#include "server/listen_address.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/status.h"

namespace quire::server {

namespace asio = boost::asio;
using boost::system::error_code;

std::string ListenAddress(const std::string& host) {
  return host == "localhost" ? "127.0.0.1" : host;
}

absl::Status CheckListenHost(const std::string& host, bool insecure_listen) {
  error_code error;
  const auto address = asio::ip::make_address(ListenAddress(host), error);
  if (error) return InvalidArgument("--host must be an IP address or localhost, got \"{}\"", host);
  if (address.is_loopback() || insecure_listen) return absl::OkStatus();
  return InvalidArgument(
      "--host {} is reachable from other machines, without encryption or authentication; add "
      "--insecure-listen if that is what you want",
      host);
}

std::string GrpcAddress(const std::string& host, std::int32_t port) {
  const std::string address = ListenAddress(host);
  const bool v6 = address.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address, port) : fmt::format("{}:{}", address, port);
}

absl::Status CheckPortFree(const std::string& host, std::int32_t port) {
  if (port == 0) return absl::OkStatus();
  error_code error;
  const auto address = asio::ip::make_address(ListenAddress(host), error);
  if (error) return InvalidArgument("--host must be an IP address or localhost, got \"{}\"", host);
  const asio::ip::tcp::endpoint endpoint(address, static_cast<std::uint16_t>(port));
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(1, error);
  if (!error) return absl::OkStatus();
  return Unavailable("cannot listen on {}: {}", GrpcAddress(host, port), error.message());
}

}  // namespace quire::server
