#include "server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/http_client.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;

// Says what it was asked.
HttpResponse Echo(const HttpRequest& request) {
  return {.status = request.path == "/missing" ? 404 : 200,
          .body = request.method + " " + request.path + " [" + request.query + "] " +
                  std::to_string(request.body.size())};
}

std::unique_ptr<HttpServer> StartEcho(const HttpOptions& options = {}) {
  auto server = HttpServer::Start(options, Echo);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

int ThreadsOfThisProcess() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int threads = 0;
    if (word == "Threads:" && status >> threads) return threads;
  }
  return -1;
}

TEST(HttpServer, AnswersByPathAndQuery) {
  const auto server = StartEcho();
  EXPECT_GT(server->port(), 0);
  const HttpAnswer answer = HttpGet(server->port(), "/a/b?x=1&y");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "GET /a/b [x=1&y] 0");
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_EQ(HttpGet(server->port(), "/missing").status, 404);
}

TEST(HttpServer, KeepsConnectionsAndTakesPipelinedRequests) {
  const auto server = StartEcho();
  HttpConnection connection(server->port());
  std::string two = "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_TRUE(connection.Send(two));
  EXPECT_EQ(connection.Read()->body, "GET /1 [] 0");
  EXPECT_EQ(connection.Read()->body, "GET /2 [] 0");
  ASSERT_TRUE(connection.Send("POST /3 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"));
  EXPECT_EQ(connection.Read()->body, "POST /3 [] 5");
  ASSERT_TRUE(connection.Send("GET /4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(connection.Read()->body, "GET /4 [] 0");
  EXPECT_TRUE(connection.WaitForClose(5));
}

TEST(HttpServer, HeadHasTheLengthButNoBody) {
  const auto server = StartEcho();
  HttpConnection connection(server->port());
  ASSERT_TRUE(
      connection.Send("HEAD /h HTTP/1.1\r\nHost: x\r\n\r\nGET /g HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto head = connection.Read(/*head_only=*/true);
  ASSERT_TRUE(head.has_value());
  EXPECT_THAT(head->head, HasSubstr("Content-Length: 11\r\n"));
  EXPECT_EQ(connection.Read()->body, "GET /g [] 0");
}

TEST(HttpServer, RefusesOversizedHeadersAndBodies) {
  HttpOptions options;
  options.max_header_bytes = 1024;
  options.max_body_bytes = 100;
  const auto server = StartEcho(options);
  {
    HttpConnection connection(server->port());
    connection.Send("GET / HTTP/1.1\r\nX: " + std::string(4000, 'x') + "\r\n\r\n");
    const auto answer = connection.Read();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 431);
    EXPECT_TRUE(connection.WaitForClose(5));
  }
  {
    HttpConnection connection(server->port());
    connection.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n");
    const auto answer = connection.Read();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 413);
  }
  EXPECT_EQ(HttpGet(server->port(), "/still").status, 200);
}

TEST(HttpServer, AnswersGarbageWithBadRequestAndGoesOn) {
  const auto server = StartEcho();
  for (const std::string& garbage :
       {std::string("\x16\x03\x01\x02") + '\0' + " a TLS hello\r\n\r\n",
        std::string("PRI * HTTP/2.0\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string(300, '\0') + "\r\n\r\n"}) {
    HttpConnection connection(server->port());
    connection.Send(garbage);
    const auto answer = connection.Read();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 400);
    EXPECT_TRUE(connection.WaitForClose(5));
  }
  EXPECT_EQ(HttpGet(server->port(), "/still").status, 200);
}

TEST(HttpServer, DropsWhoeverSendsARequestTooSlowly) {
  HttpOptions options;
  options.request_timeout = absl::Seconds(1);
  const auto server = StartEcho(options);
  HttpConnection slow(server->port());
  ASSERT_TRUE(slow.Send("GET / HTTP/1.1\r\nX-Half: "));
  EXPECT_EQ(HttpGet(server->port(), "/other").status, 200);
  EXPECT_TRUE(slow.WaitForClose(10));
}

TEST(HttpServer, DropsConnectionsThatSayNothing) {
  HttpOptions options;
  options.request_timeout = absl::Seconds(1);
  const auto server = StartEcho(options);
  HttpConnection silent(server->port());
  EXPECT_TRUE(silent.WaitForClose(10));
}

TEST(HttpServer, DropsConnectionsThatAskNothingMore) {
  HttpOptions options;
  options.idle_timeout = absl::Seconds(1);
  const auto server = StartEcho(options);
  HttpConnection asked(server->port());
  asked.Send("GET /x HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(asked.Read().has_value());
  EXPECT_TRUE(asked.WaitForClose(9)) << "sooner than a first request may take";
}

TEST(HttpServer, C89_ConnectionsAreBoundedAndCostNoThreads) {
  HttpOptions options;
  options.max_connections = 20;
  const auto server = StartEcho(options);
  const int threads = ThreadsOfThisProcess();
  std::vector<std::unique_ptr<HttpConnection>> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(std::make_unique<HttpConnection>(server->port()));
    ASSERT_TRUE(idle.back()->Send("GET /i HTTP/1.1\r\nHost: x\r\n\r\n"));
    ASSERT_TRUE(idle.back()->Read().has_value());
  }
  EXPECT_EQ(ThreadsOfThisProcess(), threads);
  HttpConnection one_too_many(server->port());
  EXPECT_TRUE(one_too_many.WaitForClose(5));

  idle.clear();  // Room again, once the server has seen them go.
  for (int tries = 0;; ++tries) {
    ASSERT_LT(tries, 1000);
    HttpConnection connection(server->port());
    connection.Send("GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
    if (const auto answer = connection.Read()) {
      EXPECT_EQ(answer->status, 200);
      break;
    }
  }
}

TEST(HttpServer, PortInUseIsAnErrorThatNamesIt) {
  const auto server = StartEcho();
  HttpOptions options;
  options.port = server->port();
  const auto second = HttpServer::Start(options, Echo);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(server->port())));
}

TEST(HttpServer, StopsWithRequestsHalfRead) {
  auto server = StartEcho();
  HttpConnection half(server->port());
  ASSERT_TRUE(half.Send("GET / HT"));
  EXPECT_EQ(HttpGet(server->port(), "/x").status, 200);
  server.reset();
  EXPECT_TRUE(half.WaitForClose(5));
}

}  // namespace
}  // namespace quire::server
