#include "cli/bench/request_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace quire::cli::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Past = RequestTargetOptions::Past;

// Continues with the number after the last token it got, and remembers what it was sent.
class Counter {
 public:
  RequestTarget::Generate generate() {
    return [this](const v1::GenerateRequest& request, const server::Client::OnResponse& on_response,
                  const server::Client::OnDone& on_done) {
      const auto& ids = request.token_ids().ids();
      sent.push_back({ids.begin(), ids.end()});
      messages.push_back(request);
      if (sent.size() > fails_after) {
        on_done({.status = absl::InternalError("broken"), .retry_after = std::nullopt});
        return;
      }
      TokenId token = ids.at(ids.size() - 1);
      for (int i = 0; i < request.sampling().max_tokens(); ++i) {
        v1::GenerateResponse response;
        response.mutable_delta()->add_token_ids(++token);
        on_response(response);
      }
      v1::GenerateResponse last;
      last.mutable_finished()->mutable_usage()->set_prompt_tokens(ids.size());
      last.mutable_finished()->mutable_usage()->set_completion_tokens(
          request.sampling().max_tokens());
      on_response(last);
      on_done({.status = absl::OkStatus(), .retry_after = std::nullopt});
    };
  }

  std::size_t fails_after = 1000;
  std::vector<std::vector<TokenId>> sent;
  std::vector<v1::GenerateRequest> messages;
};

std::vector<BenchRequest> TwoTurns() {
  return {{.prompt = {10, 20}, .output_len = 3}, {.prompt = {30}, .output_len = 2, .follows = 0}};
}

LoadResult RunAll(RequestTarget& target) {
  return RunLoad({.num_requests = 2, .follows = FollowsOf(TwoTurns())}, target, {});
}

TEST(RequestTarget, LaterTurnsSendTheWholeText) {
  Counter counter;
  RequestTarget target(counter.generate(), TwoTurns(), {});
  const LoadResult load = RunAll(target);
  EXPECT_THAT(counter.sent, ElementsAre(ElementsAre(10, 20), ElementsAre(10, 20, 21, 22, 23, 30)));
  EXPECT_THAT(target.answers(), ElementsAre(ElementsAre(21, 22, 23), ElementsAre(31, 32)));
  EXPECT_EQ(load.records[1].prompt_tokens, 6);
  EXPECT_EQ(load.records[1].completion_tokens, 2);
  EXPECT_EQ(counter.messages[0].session_id(), "");
  EXPECT_TRUE(counter.messages[0].sampling().ignore_eos());
}

TEST(RequestTarget, SessionsSendWhatIsNew) {
  Counter counter;
  RequestTarget target(counter.generate(), TwoTurns(), {.past = Past::kSession});
  RunAll(target);
  EXPECT_THAT(counter.sent, ElementsAre(ElementsAre(10, 20), ElementsAre(30)));
  EXPECT_EQ(counter.messages[0].session_id(), counter.messages[1].session_id());
  EXPECT_NE(counter.messages[0].session_id(), "");
  EXPECT_FALSE(counter.messages[0].continue_session());
  EXPECT_TRUE(counter.messages[1].continue_session());
}

TEST(RequestTarget, WithoutACacheEveryTokenIsARequest) {
  Counter counter;
  RequestTarget target(counter.generate(), TwoTurns(), {.past = Past::kEveryToken});
  const LoadResult load = RunAll(target);
  EXPECT_THAT(
      counter.sent,
      ElementsAre(ElementsAre(10, 20), ElementsAre(10, 20, 21), ElementsAre(10, 20, 21, 22),
                  ElementsAre(10, 20, 21, 22, 23, 30), ElementsAre(10, 20, 21, 22, 23, 30, 31)));
  EXPECT_THAT(target.answers(), ElementsAre(ElementsAre(21, 22, 23), ElementsAre(31, 32)));
  for (const RequestRecord& record : load.records) EXPECT_TRUE(record.succeeded());
  EXPECT_EQ(load.records[0].prompt_tokens, 2);
  EXPECT_EQ(load.records[0].completion_tokens, 3);
  EXPECT_THAT(load.records[0].arrivals, SizeIs(3));
  EXPECT_EQ(load.records[1].prompt_tokens, 6);
}

TEST(RequestTarget, AFailureEndsTheConversation) {
  Counter counter;
  counter.fails_after = 0;
  RequestTarget target(counter.generate(), TwoTurns(), {.past = Past::kEveryToken});
  const LoadResult load = RunAll(target);
  EXPECT_THAT(counter.sent, SizeIs(1));
  EXPECT_EQ(load.records[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(load.records[1].status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(target.answers()[1], IsEmpty());
}

}  // namespace
}  // namespace quire::cli::bench
