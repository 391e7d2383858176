#include "engine/request_ledger.h"

#include <gtest/gtest.h>

#include <thread>

namespace quire::engine {
namespace {

std::shared_ptr<Request> MakeRequest(std::string id) {
  return std::make_shared<Request>(std::make_shared<TokenStream>(std::move(id)));
}

std::int64_t Outcomes(const RequestCounts& c) {
  return c.finished_stop + c.finished_length + c.cancelled + c.deadline_exceeded + c.refused +
         c.failed;
}

class RequestLedgerTest : public ::testing::Test {
 protected:
  ~RequestLedgerTest() override {
    const RequestCounts c = ledger_.counts();
    EXPECT_EQ(c.received, c.queued + c.running + Outcomes(c));
  }
  RequestLedger ledger_{{.max_queued_requests = 4, .max_queued_prompt_tokens = 100}};
};

TEST_F(RequestLedgerTest, CountsARequestThroughItsLife) {
  const auto request = MakeRequest("a");
  ASSERT_TRUE(ledger_.Reserve(request, 1, 10).ok());
  EXPECT_EQ(ledger_.counts().queued, 1);
  EXPECT_TRUE(ledger_.IsLive(*request));
  ledger_.Start(*request);
  EXPECT_EQ(ledger_.counts().queued, 0);
  EXPECT_EQ(ledger_.counts().running, 1);
  EXPECT_TRUE(ledger_.Finish(*request, Outcome::kStop));
  EXPECT_EQ(ledger_.counts().running, 0);
  EXPECT_EQ(ledger_.counts().finished_stop, 1);
  EXPECT_FALSE(ledger_.IsLive(*request));
}

TEST_F(RequestLedgerTest, FinishesARequestOnce) {
  const auto request = MakeRequest("a");
  ASSERT_TRUE(ledger_.Reserve(request, 1, 10).ok());
  EXPECT_TRUE(ledger_.Finish(*request, Outcome::kCancelled));
  EXPECT_FALSE(ledger_.Finish(*request, Outcome::kStop));
  EXPECT_EQ(ledger_.counts().cancelled, 1);
  EXPECT_EQ(ledger_.counts().finished_stop, 0);
}

TEST_F(RequestLedgerTest, C34_RefusesAnIdInUse) {
  const auto first = MakeRequest("same");
  ASSERT_TRUE(ledger_.Reserve(first, 1, 10).ok());
  EXPECT_EQ(ledger_.Reserve(MakeRequest("same"), 1, 10).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ledger_.counts().refused, 1);
  ledger_.Start(*first);
  EXPECT_EQ(ledger_.Reserve(MakeRequest("same"), 1, 10).code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(ledger_.Finish(*first, Outcome::kLength));
  EXPECT_TRUE(ledger_.Reserve(MakeRequest("same"), 1, 10).ok());
}

TEST_F(RequestLedgerTest, C33_AnAbortFreesTheIdAndStaysWithItsRequest) {
  const auto first = MakeRequest("r1");
  ASSERT_TRUE(ledger_.Reserve(first, 1, 10).ok());
  EXPECT_EQ(ledger_.ClaimAbort("r1"), first);
  EXPECT_EQ(ledger_.ClaimAbort("r1"), nullptr);
  EXPECT_EQ(ledger_.ClaimAbort(*first->stream), nullptr) << "an abort is on its way already";

  const auto second = MakeRequest("r1");
  ASSERT_TRUE(ledger_.Reserve(second, 1, 10).ok());
  ASSERT_TRUE(ledger_.Finish(*first, Outcome::kCancelled));
  EXPECT_EQ(ledger_.ClaimAbort("r1"), second) << "the end of the first left the second its id";
}

TEST_F(RequestLedgerTest, NothingToAbortAfterTheEnd) {
  const auto request = MakeRequest("a");
  ASSERT_TRUE(ledger_.Reserve(request, 1, 10).ok());
  ASSERT_TRUE(ledger_.Finish(*request, Outcome::kStop));
  EXPECT_EQ(ledger_.ClaimAbort("a"), nullptr);
  EXPECT_EQ(ledger_.ClaimAbort(*request->stream), nullptr);
}

TEST_F(RequestLedgerTest, RefusesBeyondTheCapOnBranchesWithNumbers) {
  const auto first = MakeRequest("a");
  ASSERT_TRUE(ledger_.Reserve(first, 3, 1).ok());
  const absl::Status status = ledger_.Reserve(MakeRequest("b"), 2, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "queue full: 3 of 4 places are taken, this request needs 2");
  EXPECT_TRUE(ledger_.Reserve(MakeRequest("c"), 1, 1).ok());
  ledger_.Start(*first);
  EXPECT_TRUE(ledger_.Reserve(MakeRequest("d"), 3, 1).ok()) << "three places are free again";
}

TEST_F(RequestLedgerTest, RefusesBeyondTheCapOnPromptTokensWithNumbers) {
  const auto first = MakeRequest("a");
  ASSERT_TRUE(ledger_.Reserve(first, 1, 60).ok());
  const absl::Status status = ledger_.Reserve(MakeRequest("b"), 1, 41);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "queue full: 60 of 100 prompt tokens wait, this request has about 41");
  EXPECT_TRUE(ledger_.SetPromptTokens(*first, 50));
  EXPECT_TRUE(ledger_.Reserve(MakeRequest("c"), 1, 41).ok());
}

TEST_F(RequestLedgerTest, ARequestAloneInTheQueuePassesEveryCap) {
  const auto big = MakeRequest("a");
  ASSERT_TRUE(ledger_.Reserve(big, 9, 1000).ok());
  EXPECT_EQ(ledger_.Reserve(MakeRequest("b"), 1, 1).code(), absl::StatusCode::kResourceExhausted);
  ledger_.Start(*big);
  EXPECT_TRUE(ledger_.Reserve(MakeRequest("c"), 9, 1000).ok());
}

TEST_F(RequestLedgerTest, GivesBackTheQueuePlaceOfWhatNeverRan) {
  const auto request = MakeRequest("a");
  ASSERT_TRUE(ledger_.Reserve(request, 4, 100).ok());
  ASSERT_TRUE(ledger_.Finish(*request, Outcome::kDeadlineExceeded));
  EXPECT_EQ(ledger_.counts().deadline_exceeded, 1);
  ASSERT_TRUE(ledger_.Reserve(MakeRequest("b"), 1, 1).ok());
  EXPECT_TRUE(ledger_.Reserve(MakeRequest("c"), 3, 99).ok());
}

TEST_F(RequestLedgerTest, RefusesEverythingOnceClosed) {
  EXPECT_FALSE(ledger_.closed());
  ledger_.Close(absl::UnavailableError("draining"));
  ledger_.Close(absl::InternalError("too late"));
  EXPECT_TRUE(ledger_.closed());
  const absl::Status status = ledger_.Reserve(MakeRequest("a"), 1, 1);
  EXPECT_EQ(status, absl::UnavailableError("draining"));
  EXPECT_EQ(ledger_.counts().refused, 1);
}

TEST_F(RequestLedgerTest, WaitsForTheLastMessageOfEveryRequest) {
  EXPECT_TRUE(ledger_.WaitUntilDelivered(absl::ZeroDuration()));
  const auto request = MakeRequest("a");
  ASSERT_TRUE(ledger_.Reserve(request, 1, 1).ok());
  EXPECT_FALSE(ledger_.WaitUntilDelivered(absl::ZeroDuration()));
  ASSERT_TRUE(ledger_.Finish(*request, Outcome::kStop));
  EXPECT_FALSE(ledger_.WaitUntilDelivered(absl::ZeroDuration())) << "finished is not delivered";
  std::thread deliverer([this] { ledger_.Delivered(1); });
  EXPECT_TRUE(ledger_.WaitUntilDelivered(absl::Seconds(60)));
  deliverer.join();
}

TEST_F(RequestLedgerTest, OutcomesOfStatuses) {
  EXPECT_EQ(OutcomeOf(absl::CancelledError()), Outcome::kCancelled);
  EXPECT_EQ(OutcomeOf(absl::AbortedError("")), Outcome::kCancelled);
  EXPECT_EQ(OutcomeOf(absl::DeadlineExceededError("")), Outcome::kDeadlineExceeded);
  EXPECT_EQ(OutcomeOf(absl::InternalError("")), Outcome::kFailed);
  EXPECT_EQ(OutcomeOf(absl::InvalidArgumentError("")), Outcome::kRefused);
  EXPECT_EQ(OutcomeOf(absl::ResourceExhaustedError("")), Outcome::kRefused);
}

TEST_F(RequestLedgerTest, CountsAddUpUnderConcurrency) {
  const auto work = [this](int thread) {
    for (int i = 0; i < 2000; ++i) {
      const auto request = MakeRequest(std::to_string(thread) + "-" + std::to_string(i));
      if (!ledger_.Reserve(request, 1, 1).ok()) continue;
      if (i % 3 == 0) ledger_.Start(*request);
      ledger_.Finish(*request, i % 2 == 0 ? Outcome::kStop : Outcome::kCancelled);
      ledger_.Delivered(1);
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  const RequestCounts c = ledger_.counts();
  EXPECT_EQ(c.received, 4000);
  EXPECT_EQ(c.queued, 0);
  EXPECT_EQ(c.running, 0);
  EXPECT_EQ(Outcomes(c), 4000);
}

}  // namespace
}  // namespace quire::engine
