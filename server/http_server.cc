#include "server/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/status.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// One connection: read a request, answer it, again.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const HttpOptions& options, const HttpServer::Handler& handler,
          std::shared_ptr<void> slot)
      : stream_(std::move(socket)), options_(options), handler_(handler), slot_(std::move(slot)) {}

  void Start() { WaitForRequest(); }

 private:
  // Nothing but its place is held for a client between two requests, so it may take longer.
  void WaitForRequest() {
    if (buffer_.size() > 0) return ReadHeader();
    stream_.expires_after(
        absl::ToChronoSeconds(answered_ ? options_.idle_timeout : options_.request_timeout));
    stream_.async_read_some(buffer_.prepare(1024),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                              if (error) return;
                              self->buffer_.commit(bytes);
                              self->ReadHeader();
                            });
  }

  void ReadHeader() {
    stream_.expires_after(absl::ToChronoSeconds(options_.request_timeout));
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(options_.max_header_bytes));
    parser_->body_limit(options_.max_body_bytes);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, std::size_t) { self->OnRequest(error); });
  }

  void OnRequest(error_code error) {
    if (error == http::error::header_limit) return Refuse(431, "the header is too large\n");
    if (error == http::error::body_limit) return Refuse(413, "the body is too large\n");
    if (error == http::error::end_of_stream) return Close();
    if (error.category() == http::make_error_code(http::error::bad_method).category()) {
      return Refuse(400, "this is not an HTTP/1.1 request\n");
    }
    if (error) return;
    const auto request = parser_->release();
    const bool head = request.method() == http::verb::head;
    const std::string_view target(request.target().data(), request.target().size());
    const auto question = target.find('?');
    const HttpRequest view = {
        .method = head ? "GET" : std::string(request.method_string()),
        .path = std::string(target.substr(0, question)),
        .query = question == target.npos ? "" : std::string(target.substr(question + 1)),
        .body = request.body()};
    Send(handler_(view), request.version(), request.keep_alive(), head);
  }

  void Refuse(std::int32_t status, std::string why) {
    Send({.status = status, .body = std::move(why)}, 11, /*keep_alive=*/false, /*head=*/false);
  }

  void Send(HttpResponse answer, unsigned version, bool keep_alive, bool head) {
    response_ = {};
    response_.version(version);
    response_.result(static_cast<unsigned>(answer.status));
    response_.set(http::field::content_type, answer.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.keep_alive(keep_alive);
    response_.content_length(answer.body.size());
    if (!head) response_.body() = std::move(answer.body);
    serializer_.emplace(response_);
    serializer_->split(head);
    const auto on_sent = [self = shared_from_this(), keep_alive](error_code error, std::size_t) {
      if (error || !keep_alive) return self->Close();
      self->answered_ = true;
      self->WaitForRequest();
    };
    if (head) {
      http::async_write_header(stream_, *serializer_, on_sent);
    } else {
      http::async_write(stream_, *serializer_, on_sent);
    }
  }

  void Close() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  beast::tcp_stream stream_;
  const HttpOptions& options_;
  const HttpServer::Handler& handler_;
  std::shared_ptr<void> slot_;  // Counts this connection while it lives.
  bool answered_ = false;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, Handler handler)
      : options_(options), handler_(std::move(handler)), acceptor_(io_), retry_(io_) {}

  ~Impl() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen() {
    error_code error;
    const auto address = asio::ip::make_address(options_.address, error);
    if (error) return InvalidArgument("host \"{}\" is not an IP address", options_.address);
    const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(options_.port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return Unavailable("cannot listen for HTTP on {}:{}: {}", options_.address, options_.port,
                         error.message());
    }
    port_ = acceptor_.local_endpoint(error).port();
    Accept();
    thread_ = std::thread([this] { io_.run(); });
    return absl::OkStatus();
  }

  std::int32_t port() const { return port_; }

 private:
  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return AcceptLater();
      // Over the limit the socket is closed at once; the client sees a reset, not a wait.
      if (num_connections_ < options_.max_connections) Open(std::move(socket));
      Accept();
    });
  }

  // Out of file descriptors or the like: waits for some to be closed instead of spinning.
  void AcceptLater() {
    retry_.expires_after(std::chrono::milliseconds(100));
    retry_.async_wait([this](error_code error) {
      if (!error) Accept();
    });
  }

  void Open(tcp::socket socket) {
    ++num_connections_;
    std::shared_ptr<void> slot(nullptr, [this](void*) { --num_connections_; });
    std::make_shared<Session>(std::move(socket), options_, handler_, std::move(slot))->Start();
  }

  const HttpOptions options_;
  const Handler handler_;
  std::size_t num_connections_ = 0;  // Event-loop thread only.
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::int32_t port_ = 0;
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              Handler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  QUIRE_RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::int32_t HttpServer::port() const { return impl_->port(); }

}  // namespace quire::server
