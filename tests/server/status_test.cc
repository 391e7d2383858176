#include "server/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "compat/rpc_details.pb.h"

namespace quire::server {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

TEST(Status, CodesKeepTheirMeaningOnTheWire) {
  const std::vector<std::pair<absl::Status, StatusCode>> table = {
      {absl::OkStatus(), StatusCode::OK},
      {absl::InvalidArgumentError("x"), StatusCode::INVALID_ARGUMENT},
      {absl::NotFoundError("x"), StatusCode::NOT_FOUND},
      {absl::AlreadyExistsError("x"), StatusCode::ALREADY_EXISTS},
      {absl::ResourceExhaustedError("x"), StatusCode::RESOURCE_EXHAUSTED},
      {absl::FailedPreconditionError("x"), StatusCode::FAILED_PRECONDITION},
      {absl::UnavailableError("x"), StatusCode::UNAVAILABLE},
      {absl::DeadlineExceededError("x"), StatusCode::DEADLINE_EXCEEDED},
      {absl::CancelledError("x"), StatusCode::CANCELLED},
      {absl::AbortedError("x"), StatusCode::ABORTED},
      {absl::InternalError("x"), StatusCode::INTERNAL},
      {absl::UnimplementedError("x"), StatusCode::UNIMPLEMENTED},
  };
  for (const auto& [status, code] : table) {
    const grpc::Status sent = ToGrpc(status);
    EXPECT_EQ(sent.error_code(), code) << status;
    EXPECT_EQ(FromGrpc(sent), status);
  }
}

TEST(Status, InvalidArgumentNamesTheFieldInDetails) {
  const grpc::Status sent = ToGrpc(absl::InvalidArgumentError("top_p must be in (0, 1], got 2"));
  compat::RpcStatus details;
  ASSERT_TRUE(details.ParseFromString(sent.error_details()));
  EXPECT_EQ(details.code(), 3);
  EXPECT_EQ(details.message(), sent.error_message());
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.BadRequest");
  compat::BadRequest bad_request;
  ASSERT_TRUE(bad_request.ParseFromString(details.details(0).value()));
  ASSERT_EQ(bad_request.field_violations_size(), 1);
  EXPECT_EQ(bad_request.field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(bad_request.field_violations(0).description(), "top_p must be in (0, 1], got 2");
}

TEST(Status, FieldIsTheFirstWordWhenItNamesOne) {
  EXPECT_EQ(FieldOf("temperature must be finite"), "sampling.temperature");
  EXPECT_EQ(FieldOf("stop[2] is empty"), "sampling.stop[2]");
  EXPECT_EQ(FieldOf("logit_bias: token 7 is outside the vocabulary"), "sampling.logit_bias");
  EXPECT_EQ(FieldOf("token_ids[0] is -1"), "token_ids[0]");
  EXPECT_EQ(FieldOf("request_id must be short"), "request_id");
  EXPECT_EQ(FieldOf("prompt is missing"), "prompt");
  EXPECT_EQ(FieldOf("the prompt has 9 tokens"), "");
  EXPECT_EQ(FieldOf(""), "");
  EXPECT_EQ(FieldOf("[]"), "");
}

TEST(Status, RetryHintTravelsInDetails) {
  const auto sent = ToGrpc(absl::ResourceExhaustedError("queue full"), absl::Milliseconds(1250));
  EXPECT_EQ(RetryAfterOf(sent), absl::Milliseconds(1250));
  // Never zero, which would invite a busy loop.
  EXPECT_EQ(RetryAfterOf(ToGrpc(absl::ResourceExhaustedError("queue full"), absl::ZeroDuration())),
            absl::Milliseconds(1));
  EXPECT_EQ(RetryAfterOf(ToGrpc(absl::ResourceExhaustedError("too slow"))), std::nullopt);
  EXPECT_EQ(RetryAfterOf(ToGrpc(absl::UnavailableError("draining"), absl::Seconds(1))),
            std::nullopt);
  EXPECT_EQ(RetryAfterOf(grpc::Status(StatusCode::UNKNOWN, "m", "not a message")), std::nullopt);
}

TEST(Status, C98_MessagesArePrintableShortUtf8) {
  using namespace std::string_literals;
  EXPECT_EQ(PrintableMessage("plain ü 你好"), "plain ü 你好");
  EXPECT_EQ(PrintableMessage("a\nb\tc\0d\x7f"s), "a\\nb\\u{9}c\\u{0}d\\u{7f}");
  EXPECT_EQ(PrintableMessage("\xff\xc0\x80 \xed\xa0\x80"), "\\xff\\xc0\\x80 \\xed\\xa0\\x80");
  EXPECT_EQ(PrintableMessage("cut \xe4\xbd"), "cut \\xe4\\xbd");
  EXPECT_EQ(PrintableMessage("bidi \u202e trick"), "bidi \\u{202e} trick");

  const std::vector<std::string> long_ones = {std::string(20'000, 'x'), std::string(20'000, '\0'),
                                              std::string(20'000, '\xfe')};
  for (const auto& text : long_ones) {
    const grpc::Status sent = ToGrpc(absl::InvalidArgumentError("stop " + text));
    EXPECT_EQ(sent.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_LE(sent.error_message().size(), kMaxMessageBytes);
    EXPECT_GT(sent.error_message().size(), kMaxMessageBytes / 2);
    EXPECT_THAT(sent.error_message(), HasSubstr(" more bytes)"));
  }
  // The count is exact, and characters are not cut in half.
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "你";
  const std::string cut = PrintableMessage(wide);
  const auto kept = cut.find("…");
  ASSERT_NE(kept, std::string::npos);
  EXPECT_EQ(kept % 3, 0u);
  EXPECT_EQ(cut.substr(kept), fmt::format("… ({} more bytes)", wide.size() - kept));
}

TEST(Status, C98_MessageThatJustFitsIsLeftAlone) {
  const std::string exact(kMaxMessageBytes, 'x');
  EXPECT_EQ(PrintableMessage(exact), exact);
  EXPECT_NE(PrintableMessage(exact + "x"), exact + "x");
}

}  // namespace
}  // namespace quire::server
