// Generate and GenerateUnary over loopback, against the fake model.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "compat/rpc_details.pb.h"
#include "server/status.h"
#include "tests/server/harness.h"

namespace quire::server {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<TokenId> Greedy(const std::vector<TokenId>& prompt, std::int32_t count) {
  return fakes::FakeModelRunner::Greedy(prompt, count, fakes::FakeModelOptions().vocab_size);
}

TEST(Generate, StreamsAcceptedThenDeltasThenFinishedThenOk) {
  Harness harness;
  const auto prompt = Prompt(20);
  Collected call(&harness.client(), Request(prompt, 12));
  EXPECT_TRUE(call.Wait().status.ok()) << call.Wait().status;

  const auto& messages = call.messages();
  ASSERT_GE(messages.size(), 3u);
  ASSERT_TRUE(messages.front().has_accepted());
  EXPECT_EQ(messages.front().accepted().prompt_tokens(), 20);
  EXPECT_EQ(messages.front().accepted().cached_tokens(), 0);
  EXPECT_FALSE(messages.front().accepted().request_id().empty());
  EXPECT_THAT(messages.front().accepted().prompt_token_ids(), IsEmpty());
  for (std::size_t i = 1; i + 1 < messages.size(); ++i) EXPECT_TRUE(messages[i].has_delta());
  ASSERT_TRUE(messages.back().has_finished());
  const auto& finished = messages.back().finished();
  EXPECT_EQ(finished.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(finished.usage().prompt_tokens(), 20);
  EXPECT_EQ(finished.usage().completion_tokens(), 12);
  EXPECT_GT(finished.timings().ttft_ms(), 0);
  EXPECT_EQ(call.tokens(), Greedy(prompt, 12));
}

TEST(Generate, TextPromptsEchoTheirTokens) {
  Harness harness;
  v1::GenerateRequest request = Request({}, 3);
  request.mutable_text()->set_text("hello");
  Collected call(&harness.client(), request);
  ASSERT_TRUE(call.Wait().status.ok()) << call.Wait().status;
  EXPECT_THAT(call.messages().front().accepted().prompt_token_ids(),
              testing::ElementsAre('h', 'e', 'l', 'l', 'o'));
  EXPECT_EQ(call.tokens(), Greedy({'h', 'e', 'l', 'l', 'o'}, 3));
}

TEST(Generate, C106_UnaryAndStreamSayTheSame) {
  Harness harness;
  for (const std::int32_t max_tokens : {1, 5, 20}) {
    v1::GenerateRequest request = Request(Prompt(33, 5), max_tokens);
    request.mutable_sampling()->set_n(2);
    request.mutable_sampling()->set_temperature(1);
    request.mutable_sampling()->set_seed(7);
    request.mutable_sampling()->set_logprobs(2);
    Collected stream(&harness.client(), request);
    ASSERT_TRUE(stream.Wait().status.ok()) << stream.Wait().status;
    const auto unary = harness.client().GenerateUnary(request, {});
    ASSERT_TRUE(unary.ok()) << unary.status();
    ASSERT_EQ(unary->completions_size(), 2);
    for (std::int32_t branch = 0; branch < 2; ++branch) {
      const v1::Completion& completion = unary->completions(branch);
      EXPECT_EQ(completion.index(), branch);
      EXPECT_EQ(std::vector<TokenId>(completion.token_ids().begin(), completion.token_ids().end()),
                stream.tokens(branch));
      EXPECT_EQ(completion.text(), stream.text(branch));
      EXPECT_EQ(completion.logprobs_size(), max_tokens);
      ASSERT_NE(stream.finished(branch), nullptr);
      const auto& usage = completion.finished().usage();
      EXPECT_EQ(usage.completion_tokens(), max_tokens);
      EXPECT_EQ(usage.prompt_tokens(), 33);
      EXPECT_LE(usage.cached_tokens(), usage.prompt_tokens());
      EXPECT_EQ(usage.completion_tokens(), stream.finished(branch)->usage().completion_tokens());
      EXPECT_EQ(usage.prompt_tokens(), stream.finished(branch)->usage().prompt_tokens());
      EXPECT_EQ(completion.finished().seed(), 7u);
    }
  }
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.generation_tokens(), 2 * 2 * (1 + 5 + 20));
  ExpectConservation(stats);
}

// The table of refusals, as a client sees it.
struct Refusal {
  const char* name;
  std::function<void(v1::GenerateRequest*)> spoil;
  absl::StatusCode code;
  const char* field;  // Of the BadRequest detail; empty: none.
};

class RefusalTest : public testing::TestWithParam<Refusal> {
 protected:
  static void SetUpTestSuite() { harness_ = new Harness(); }
  static void TearDownTestSuite() {
    delete harness_;
    harness_ = nullptr;
  }
  static Harness* harness_;
};
Harness* RefusalTest::harness_ = nullptr;

TEST_P(RefusalTest, ComesBeforeAnyHeaderAndNamesTheField) {
  v1::GenerateRequest request = Request(Prompt(5), 4);
  GetParam().spoil(&request);
  const auto channel = harness_->Channel();
  v1::GenerationService::Stub stub(channel);
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "trace-1");
  const auto reader = stub.Generate(&context, request);
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(static_cast<int>(status.error_code()), static_cast<int>(GetParam().code))
      << status.error_message();
  EXPECT_LT(status.error_message().size(), 1024u);
  // A lone status: a gateway may still try another server.
  EXPECT_EQ(context.GetServerInitialMetadata().count("x-request-id"), 0u);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("x-request-id"), 1u);

  std::string field;
  compat::RpcStatus details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  for (const auto& any : details.details()) {
    compat::BadRequest bad;
    if (bad.ParseFromString(any.value())) field = bad.field_violations(0).field();
  }
  EXPECT_EQ(field, GetParam().field) << status.error_message();
}

INSTANTIATE_TEST_SUITE_P(
    Table, RefusalTest,
    testing::Values(
        Refusal{"NoPrompt", [](auto* r) { r->clear_token_ids(); },
                absl::StatusCode::kInvalidArgument, "prompt"},
        Refusal{"UnknownModel", [](auto* r) { r->set_model("other"); }, absl::StatusCode::kNotFound,
                ""},
        Refusal{"BadRequestId", [](auto* r) { r->set_request_id("a b"); },
                absl::StatusCode::kInvalidArgument, "request_id"},
        Refusal{"NanTemperature", [](auto* r) { r->mutable_sampling()->set_temperature(NAN); },
                absl::StatusCode::kInvalidArgument, "sampling.temperature"},
        Refusal{"TopP", [](auto* r) { r->mutable_sampling()->set_top_p(1.5); },
                absl::StatusCode::kInvalidArgument, "sampling.top_p"},
        Refusal{"MaxTokens", [](auto* r) { r->mutable_sampling()->set_max_tokens(0); },
                absl::StatusCode::kInvalidArgument, "sampling.max_tokens"},
        Refusal{"EmptyStop", [](auto* r) { r->mutable_sampling()->add_stop(""); },
                absl::StatusCode::kInvalidArgument, "sampling.stop[0]"},
        Refusal{"LogitBias",
                [](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[300] = 1; },
                absl::StatusCode::kInvalidArgument, "sampling.logit_bias"}),
    [](const auto& test) { return test.param.name; });

TEST(Generate, C98_UserBytesInMessagesArePrintableAndShort) {
  Harness harness;
  v1::GenerateRequest request = Request(Prompt(5), 4);
  request.set_model(std::string(20'000, '\n') + "\x01 ü");
  Collected call(&harness.client(), request);
  const absl::Status status = call.Wait().status;
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_LT(status.message().size(), 1024u);
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

TEST(Generate, C14_C20_TooLongForThePoolIsRefusedAtOnceAndTheNextIsServed) {
  HarnessOptions options;
  options.model.num_blocks = 8;
  options.model.max_model_len = 1024;
  Harness harness(options);
  for (int i = 0; i < 50; ++i) {
    Collected call(&harness.client(), Request(Prompt(129), 1));
    EXPECT_TRUE(absl::IsInvalidArgument(call.Wait().status)) << call.Wait().status;
    EXPECT_THAT(std::string(call.Wait().status.message()), HasSubstr("128"));
  }
  Collected next(&harness.client(), Request(Prompt(10), 5));
  EXPECT_TRUE(next.Wait().status.ok());
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.blocks().active(), 0);
  EXPECT_EQ(stats.requests().refused(), 50);
}

TEST(Generate, C34_LiveIdIsRefusedAndTheFirstUnharmed) {
  Harness harness;
  StepGate steps(&harness.model());
  steps.Close();
  v1::GenerateRequest request = Request(Prompt(20), 30);
  request.set_request_id("same");
  Collected first(&harness.client(), request);
  steps.WaitUntilHeld();
  Collected second(&harness.client(), request);
  EXPECT_TRUE(absl::IsAlreadyExists(second.Wait().status)) << second.Wait().status;
  steps.Open();
  EXPECT_TRUE(first.Wait().status.ok());
  EXPECT_EQ(first.tokens(), Greedy(Prompt(20), 30));
  EXPECT_EQ(first.messages().front().accepted().request_id(), "same");
  ExpectConservation(harness.WaitUntilIdle());
}

TEST(Generate, C33_AnIdMayBeUsedAgainRightAfterACancel) {
  Harness harness;
  v1::GenerateRequest request = Request(Prompt(20), 200);
  request.set_request_id("r1");
  for (int i = 0; i < 50; ++i) {
    { Collected cancelled(&harness.client(), request); }
    v1::GenerateRequest again = Request(Prompt(20), 2);
    again.set_request_id("r1");
    Collected next(&harness.client(), again);
    const absl::Status status = next.Wait().status;
    // The old call may still hold the id; the new one is never cancelled in its place.
    EXPECT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
  }
  ExpectConservation(harness.WaitUntilIdle());
}

// A snapshot is published after each step, so some must be let through.
void WaitUntilOneIsQueued(Harness& harness, StepGate& steps) {
  harness.WaitForStats([&](const v1::Stats& stats) {
    if (stats.requests().queued() == 1) return true;
    steps.Allow(1);
    return false;
  });
}

TEST(Generate, FullQueueGetsAHintAndTheClientComesBack) {
  HarnessOptions options;
  options.engine.max_queued_requests = 1;
  options.engine.scheduler.max_num_seqs = 1;
  Harness harness(options);
  StepGate steps(&harness.model());
  steps.Close();
  Collected running(&harness.client(), Request(Prompt(8, 1), 900));
  steps.WaitUntilHeld();
  Collected queued(&harness.client(), Request(Prompt(8, 2), 2));
  WaitUntilOneIsQueued(harness, steps);

  Collected refused(&harness.client(), Request(Prompt(8, 3), 2));
  const CallOutcome& outcome = refused.Wait();
  ASSERT_TRUE(absl::IsResourceExhausted(outcome.status)) << outcome.status;
  ASSERT_TRUE(outcome.retry_after.has_value());
  EXPECT_GT(*outcome.retry_after, absl::ZeroDuration());
  EXPECT_EQ(outcome.num_tries, 1);
  EXPECT_THAT(refused.messages(), IsEmpty());

  CallOptions patient;
  patient.retry_for = absl::Minutes(1);
  Collected retried(&harness.client(), Request(Prompt(8, 4), 2), patient);
  steps.Open();
  EXPECT_TRUE(retried.Wait().status.ok()) << retried.Wait().status;
  EXPECT_EQ(retried.tokens(), Greedy(Prompt(8, 4), 2));
  EXPECT_TRUE(running.Wait().status.ok());
  EXPECT_TRUE(queued.Wait().status.ok());
}

TEST(Generate, RetryHintIsInTrailersToo) {
  HarnessOptions options;
  options.engine.max_queued_requests = 1;
  options.engine.scheduler.max_num_seqs = 1;
  Harness harness(options);
  StepGate steps(&harness.model());
  steps.Close();
  Collected running(&harness.client(), Request(Prompt(8, 1), 900));
  steps.WaitUntilHeld();
  Collected queued(&harness.client(), Request(Prompt(8, 2), 2));
  WaitUntilOneIsQueued(harness, steps);

  v1::GenerationService::Stub stub(harness.Channel());
  grpc::ClientContext context;
  v1::GenerateUnaryRequest request;
  *request.mutable_request() = Request(Prompt(8, 5), 2);
  v1::GenerateUnaryResponse response;
  const grpc::Status status = stub.GenerateUnary(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto hint = trailers.find(kRetryAfterKey);
  ASSERT_NE(hint, trailers.end());
  EXPECT_GT(std::stoi(std::string(hint->second.data(), hint->second.size())), 0);
  steps.Open();
}

TEST(Generate, C86_CancelFreesTheBlocks) {
  Harness harness(LongAnswers());
  Collected call(&harness.client(), Request(Prompt(40), kEndless));
  call.WaitForTokens(1);
  call.Cancel();
  EXPECT_TRUE(absl::IsCancelled(call.Wait().status));
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.blocks().active(), 0);
  EXPECT_EQ(stats.requests().cancelled(), 1);
  EXPECT_LT(stats.generation_tokens(), kEndless);
  EXPECT_THAT(harness.model().faults(), IsEmpty());
}

TEST(Generate, C86_ADroppedConnectionFreesTheBlocks) {
  Harness harness(LongAnswers());
  {
    const auto dying = harness.Connect();
    Collected call(dying.get(), Request(Prompt(40), kEndless));
    call.WaitForTokens(1);
    call.Cancel();
  }
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.blocks().active(), 0);
  EXPECT_EQ(stats.requests().cancelled(), 1);
}

TEST(Generate, C87_UnaryCallsNoticeCancellationToo) {
  Harness harness(LongAnswers());
  StepGate steps(&harness.model());
  steps.Close();
  steps.Allow(3);
  v1::GenerationService::Stub stub(harness.Channel());
  grpc::ClientContext context;
  v1::GenerateUnaryRequest request;
  *request.mutable_request() = Request(Prompt(40), kEndless);
  v1::GenerateUnaryResponse response;
  absl::Notification done;
  grpc::Status status;
  stub.async()->GenerateUnary(&context, &request, &response, [&](grpc::Status s) {
    status = std::move(s);
    done.Notify();
  });
  steps.WaitUntilHeld();
  context.TryCancel();
  done.WaitForNotification();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  steps.Open();
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.requests().cancelled(), 1);
  EXPECT_EQ(stats.blocks().active(), 0);
  EXPECT_LT(stats.generation_tokens(), kEndless);

  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(harness.client().GenerateUnary(Request(Prompt(5), 2), {}).ok());
  }
  EXPECT_EQ(harness.WaitUntilIdle().requests().finished_length(), 100);
}

TEST(Generate, C35_DeadlineInTheQueueCostsNoPrefill) {
  HarnessOptions options;
  options.engine.scheduler.max_num_seqs = 1;
  Harness harness(options);
  StepGate steps(&harness.model());
  steps.Close();
  Collected running(&harness.client(), Request(Prompt(16, 1), 50));
  steps.WaitUntilHeld();
  CallOptions hasty;
  hasty.timeout = absl::Milliseconds(200);
  Collected late(&harness.client(), Request(Prompt(64, 2), 4), hasty);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.Wait().status)) << late.Wait().status;
  EXPECT_THAT(late.messages(), IsEmpty());
  steps.Open();
  EXPECT_TRUE(running.Wait().status.ok());
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.requests().deadline_exceeded(), 1);
  EXPECT_EQ(stats.requests().finished_length(), 1);
  // 16 prompt tokens and 49 fed-back ones: nothing of the late prompt was computed.
  EXPECT_EQ(harness.model().num_computed_tokens(), 16 + 49);
}

TEST(Generate, DeadlineWhileRunningFreesTheBlocks) {
  Harness harness(LongAnswers());
  StepGate steps(&harness.model());
  steps.Close();
  steps.Allow(4);
  CallOptions hasty;
  hasty.timeout = absl::Milliseconds(300);
  Collected call(&harness.client(), Request(Prompt(16), kEndless), hasty);
  EXPECT_TRUE(absl::IsDeadlineExceeded(call.Wait().status)) << call.Wait().status;
  steps.Open();
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.requests().deadline_exceeded(), 1);
  EXPECT_EQ(stats.blocks().active(), 0);
}

TEST(Generate, C36_CancelAfterTheLastMessageCountsAsFinished) {
  Harness harness;
  for (int i = 0; i < 100; ++i) {
    Collected call(&harness.client(), Request(Prompt(5), 2));
    EXPECT_TRUE(call.Wait().status.ok());
    call.Cancel();
  }
  const v1::Stats stats = harness.WaitUntilIdle();
  EXPECT_EQ(stats.requests().finished_length(), 100);
  EXPECT_EQ(stats.requests().cancelled(), 0);
}

TEST(Generate, RequestIdIsEchoedInHeaders) {
  Harness harness;
  v1::GenerationService::Stub stub(harness.Channel());
  for (const std::string& sent : {std::string("trace-7"), std::string(200, 'x'), std::string()}) {
    grpc::ClientContext context;
    if (!sent.empty()) context.AddMetadata("x-request-id", sent);
    v1::GenerateRequest request = Request(Prompt(5), 2);
    request.set_request_id("mine");
    const auto reader = stub.Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    ASSERT_TRUE(reader->Finish().ok());
    const auto& headers = context.GetServerInitialMetadata();
    const auto echoed = headers.find("x-request-id");
    ASSERT_NE(echoed, headers.end());
    // Too long to be echoed: the request's own id stands in.
    EXPECT_EQ(std::string(echoed->second.data(), echoed->second.size()),
              sent == "trace-7" ? sent : "mine");
  }
}

TEST(Generate, C65_BytesThatAreNoMessageAreInvalidArgument) {
  Harness harness;
  grpc::GenericStub stub(harness.Channel());
  const std::vector<std::string> broken = {
      std::string("\x1a\x04\x0a\x02\xc3\x28", 6),      // text.text = C3 28, not UTF-8.
      std::string("\x1a\x05\x0a\x03\xed\xa0\x80", 7),  // A surrogate.
      std::string("\x22\xff\xff\xff\xff\x0f", 6),      // A length past the end.
      std::string("\xff", 1),
  };
  for (const std::string method : {"Generate", "GenerateUnary", "Tokenize"}) {
    for (const std::string& bytes : broken) {
      std::string body = bytes;
      if (method == "GenerateUnary") {
        body = std::string("\x0a") + static_cast<char>(bytes.size()) + bytes;
      }
      if (method == "Tokenize" && bytes[0] == '\x1a') body[0] = '\x0a';
      grpc::ClientContext context;
      const grpc::Slice slice(body);
      const grpc::ByteBuffer request(&slice, 1);
      grpc::ByteBuffer response;
      absl::Notification done;
      grpc::Status status;
      stub.UnaryCall(&context, "/quire.v1.GenerationService/" + method, grpc::StubOptions(),
                     &request, &response, [&](grpc::Status s) {
                       status = std::move(s);
                       done.Notify();
                     });
      done.WaitForNotification();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
          << method << ": " << status.error_message();
      EXPECT_THAT(status.error_message(), HasSubstr("quire.v1."));
    }
  }
  EXPECT_TRUE(harness.client().GenerateUnary(Request(Prompt(5), 2), {}).ok());
}

TEST(Generate, AbortRpcEndsARequestWithAborted) {
  Harness harness(LongAnswers());
  v1::GenerateRequest request = Request(Prompt(20), kEndless);
  request.set_request_id("doomed");
  Collected call(&harness.client(), request);
  call.WaitForTokens(1);
  EXPECT_TRUE(harness.client().Abort({"doomed", "unknown"}).ok());
  EXPECT_EQ(call.Wait().status.code(), absl::StatusCode::kAborted) << call.Wait().status;
  EXPECT_TRUE(harness.client().Abort({"doomed"}).ok());
  EXPECT_EQ(harness.WaitUntilIdle().blocks().active(), 0);
}

TEST(Generate, C60_AFailedRequestIsInternalAndTheOthersGoOn) {
  Harness harness;
  harness.model().SetPoison(5);
  Collected bad(&harness.client(), Request({5, 6, 7}, 4));
  Collected good(&harness.client(), Request({8, 9, 10}, 4));
  EXPECT_EQ(bad.Wait().status.code(), absl::StatusCode::kInternal) << bad.Wait().status;
  EXPECT_TRUE(good.Wait().status.ok());
  EXPECT_EQ(good.tokens(), Greedy({8, 9, 10}, 4));
}

TEST(Client, ThousandStreamsOnOneThread) {
  HarnessOptions options;
  options.model.num_blocks = 1024;
  options.engine.max_queued_requests = 2000;
  Harness harness(options);
  std::vector<std::unique_ptr<Collected>> calls;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    calls.push_back(std::make_unique<Collected>(&harness.client(), Request(Prompt(4, i), 3)));
  }
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(calls[i]->Wait().status.ok()) << calls[i]->Wait().status;
    EXPECT_EQ(calls[i]->tokens(), Greedy(Prompt(4, i), 3));
  }
  ExpectConservation(harness.WaitUntilIdle());
}

TEST(Client, DestructorCancelsAndEveryCallHearsItsEnd) {
  Harness harness;
  auto client = harness.Connect();
  std::atomic<int> ends = 0;
  std::shared_ptr<Call> handle;
  for (std::uint64_t i = 0; i < 20; ++i) {
    handle = client->Generate(
        Request(Prompt(8, i), 900), {}, [](const auto&) {}, [&](const CallOutcome&) { ++ends; });
  }
  client.reset();
  EXPECT_EQ(ends, 20);
  handle->Cancel();  // Of a client that is gone.
  EXPECT_EQ(harness.WaitUntilIdle().blocks().active(), 0);
}

TEST(Client, SaysWhoDoesNotAnswer) {
  ClientOptions options;
  options.target = "127.0.0.1:1";
  options.connect_timeout = absl::Milliseconds(300);
  const auto client = Client::Connect(options);
  EXPECT_TRUE(absl::IsUnavailable(client.status()));
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace quire::server
