#include "cli/request_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>

namespace quire::cli {
namespace {

using ::testing::ElementsAre;

// Answers on a thread of its own, in the order that the test decides.
class FakeTarget final : public Target {
 public:
  std::shared_ptr<server::Call> Generate(const v1::GenerateRequest& request,
                                         const server::CallOptions&, OnResponse on_response,
                                         OnDone on_done) override {
    ++num_live;
    max_live = std::max(max_live, num_live);
    pending.push_back(
        [this, request, on_response = std::move(on_response), on_done = std::move(on_done)] {
          v1::GenerateResponse response;
          response.mutable_delta()->set_text("<" + request.request_id() + ">");
          on_response(response);
          --num_live;
          on_done({.status = request.priority() < 0 ? absl::ResourceExhaustedError("full")
                                                    : absl::OkStatus(),
                   .retry_after = std::nullopt});
        });
    if (pending.size() == batch) Answer();
    return nullptr;
  }
  void EndSession(const std::string&, const std::string&, absl::Duration) override {}
  // The newest first.
  void Answer() {
    std::thread([this] {
      while (!pending.empty()) {
        const auto last = std::move(pending.back());
        pending.pop_back();
        last();
      }
    }).join();
  }

  std::size_t batch = 1;
  std::vector<std::function<void()>> pending;
  int num_live = 0;
  int max_live = 0;
};

std::vector<v1::GenerateRequest> Requests(int count) {
  std::vector<v1::GenerateRequest> requests(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    requests[static_cast<std::size_t>(i)].set_request_id(std::to_string(i));
  return requests;
}

TEST(RunRequests, HandsOutAnswersInOrderWhateverOrderTheyEndIn) {
  FakeTarget target;
  target.batch = 4;
  auto requests = Requests(4);
  requests[2].set_priority(-1);
  std::vector<std::string> texts;
  std::vector<bool> good;
  RunRequests(target, requests, {},
              {.on_response = {},
               .on_progress = {},
               .on_result = [&](std::size_t index, const RequestResult& result) {
                 EXPECT_EQ(index, texts.size());
                 texts.push_back(result.answer.completions(0).text());
                 good.push_back(result.outcome.status.ok());
               }});
  EXPECT_THAT(texts, ElementsAre("<0>", "<1>", "<2>", "<3>"));
  EXPECT_THAT(good, ElementsAre(true, true, false, true));
  EXPECT_EQ(target.max_live, 4) << "all at once unless limited";
}

TEST(RunRequests, KeepsWithinTheConcurrency) {
  FakeTarget target;
  target.batch = 2;
  std::size_t last_progress = 0;
  std::size_t num_responses = 0;
  RunRequests(target, Requests(6), {.concurrency = 2, .call = {}},
              {.on_response = [&](std::size_t, const v1::GenerateResponse&) { ++num_responses; },
               .on_progress = [&](std::size_t num_done) { last_progress = num_done; },
               .on_result = [](std::size_t, const RequestResult&) {}});
  EXPECT_EQ(target.max_live, 2);
  EXPECT_EQ(last_progress, 6U);
  EXPECT_EQ(num_responses, 6U);
}

}  // namespace
}  // namespace quire::cli
