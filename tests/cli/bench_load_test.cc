#include "cli/bench/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench_fake_target.h"
#include "cli/bench/report.h"

namespace quire::cli::bench {
namespace {

std::vector<absl::Duration> EvenArrivals(int count, absl::Duration gap) {
  std::vector<absl::Duration> arrivals;
  for (int i = 0; i < count; ++i) arrivals.push_back(i * gap);
  return arrivals;
}

TEST(RunLoad, ClosedLoopKeepsTheAskedNumberInFlight) {
  FakeTarget target([](int) { return Answer(10, 10, 3); });  // 30 ms each.
  const LoadResult load =
      RunLoad({.num_requests = 10, .arrivals = {}, .max_concurrency = 4}, target, {});
  EXPECT_EQ(load.max_concurrent_requests, 4);
  EXPECT_EQ(load.end - load.start, absl::Milliseconds(90));  // 4 + 4 + 2.
  for (const RequestRecord& record : load.records) {
    EXPECT_TRUE(record.succeeded());
    EXPECT_EQ(record.due, record.sent);
    EXPECT_EQ(record.done - record.due, absl::Milliseconds(30));
    EXPECT_EQ(record.arrivals.size(), 3U);
  }
}

TEST(RunLoad, OpenLoopSendsOnTimeWhateverTheServerDoes) {
  FakeTarget target([](int) { return Answer(5000, 1, 1); });  // Far slower than the arrivals.
  const LoadResult load = RunLoad(
      {.num_requests = 50, .arrivals = EvenArrivals(50, absl::Milliseconds(20))}, target, {});
  ASSERT_EQ(target.sent_at.size(), 50U);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(target.sent_at[static_cast<std::size_t>(i)],
              absl::UnixEpoch() + i * absl::Milliseconds(20));
  }
  EXPECT_EQ(load.max_concurrent_requests, 50);
}

// A server that freezes for 2 s once in a 20 s run at 50 requests/s, behind a tool that may hold
// `max_concurrency` requests in flight.
BenchReport RunWithFreeze(int max_concurrency) {
  FakeTarget target([](int) { return Answer(1, 1, 2); });
  target.Freeze(absl::UnixEpoch() + absl::Seconds(10), absl::UnixEpoch() + absl::Seconds(12));
  BenchSettings settings;
  settings.request_rate = 50;
  return MakeReport(settings,
                    RunLoad({.num_requests = 1000,
                             .arrivals = EvenArrivals(1000, absl::Milliseconds(20)),
                             .max_concurrency = max_concurrency},
                            target, {}),
                    {});
}

TEST(RunLoad, C108_AStallOfTheServerShowsInThePercentiles) {
  const BenchReport report = RunWithFreeze(0);
  EXPECT_EQ(report.completed, 1000);
  EXPECT_NEAR(report.ttft_ms.p99, 1800, 30);
  EXPECT_NEAR(report.ttft_ms.max, 2000, 10);
  EXPECT_EQ(report.ttft_ms.p50, 1);
  EXPECT_NEAR(report.achieved_request_rate, 50, 0.1);
  EXPECT_EQ(report.max_send_delay_ms, 0);
}

TEST(RunLoad, C108_WaitingInsideTheToolCountsAsLatency) {
  // Only one request in flight: the others wait here, and are measured from when they were due.
  const BenchReport report = RunWithFreeze(1);
  EXPECT_EQ(report.completed, 1000);
  EXPECT_NEAR(report.ttft_ms.p99, 1800, 60);
  EXPECT_GT(report.max_send_delay_ms, 1900);
  EXPECT_EQ(report.max_concurrent_requests, 1);
}

TEST(RunLoad, C110_CountsOnlyWholeAnswersAsSuccess) {
  // Of 100 requests 20 are refused, 10 cut before the final status, 5 answered with 0 tokens.
  FakeTarget target([](int request) -> std::vector<LoadEvent> {
    if (request % 100 < 20) return {DoneAt(1, absl::ResourceExhaustedError("full"))};
    if (request % 100 < 25) {
      return {TokensAt(5, 1), DoneAt(6, absl::UnavailableError("connection lost"))};
    }
    if (request % 100 < 30) return {TokensAt(5, 1), DoneAt(6)};  // No final message.
    if (request % 100 < 35) return {FinishedAt(5, 0), DoneAt(5)};
    return Answer(100, 10, 4);
  });
  const LoadResult load = RunLoad({.num_requests = 100, .max_concurrency = 8}, target, {});
  const BenchReport report = MakeReport({}, load, {});
  EXPECT_EQ(report.completed, 65);
  EXPECT_EQ(report.failed, 35);
  EXPECT_EQ(report.errors, (std::map<std::string, Failures>{
                               {"INCOMPLETE", {10, "the answer had no end or no tokens"}},
                               {"RESOURCE_EXHAUSTED", {20, "full"}},
                               {"UNAVAILABLE", {5, "connection lost"}}}));
  EXPECT_EQ(report.ttft_ms.count, 65);
  EXPECT_EQ(report.ttft_ms.min, 100) << "fast refusals must not improve latency";
  EXPECT_EQ(report.total_output_tokens, 65 * 4);
}

TEST(RunLoad, SendsAFollowerWhenTheRequestBeforeItIsDone) {
  FakeTarget target([](int request) { return Answer(request == 0 ? 30 : 10, 1, 1); });
  // Two conversations, of three turns and two, and one request alone.
  const LoadResult load = RunLoad(
      {.num_requests = 6, .follows = {kNoRequest, 0, 1, kNoRequest, 3, kNoRequest}}, target, {});
  const auto sent_ms = [&](std::size_t i) {
    return absl::ToInt64Milliseconds(load.records[i].sent - load.start);
  };
  EXPECT_EQ(sent_ms(0), 0);
  EXPECT_EQ(sent_ms(1), 30);
  EXPECT_EQ(sent_ms(2), 40);
  EXPECT_EQ(sent_ms(3), 0);
  EXPECT_EQ(sent_ms(4), 10);
  EXPECT_EQ(sent_ms(5), 0);
  EXPECT_EQ(load.max_concurrent_requests, 3);
  for (const RequestRecord& record : load.records) {
    EXPECT_TRUE(record.succeeded());
    EXPECT_EQ(record.due, record.sent) << "a turn is due when the one before it has ended";
  }
}

TEST(RunLoad, FollowersWaitTheirTurn) {
  FakeTarget target([](int) { return Answer(10, 1, 1); });
  const LoadResult load = RunLoad(
      {.num_requests = 4, .follows = {kNoRequest, 0, kNoRequest, kNoRequest}, .max_concurrency = 1},
      target, {});
  EXPECT_EQ(load.records[1].sent - load.start, absl::Milliseconds(30)) << "behind 2 and 3";
}

TEST(RunLoad, C114_ReportsWhatWasReallyInFlight) {
  FakeTarget target([](int) { return Answer(50, 1, 1); });
  const LoadResult load = RunLoad({.num_requests = 600, .max_concurrency = 256}, target, {});
  EXPECT_EQ(load.max_concurrent_requests, 256);
}

}  // namespace
}  // namespace quire::cli::bench
