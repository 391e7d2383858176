#include "cli/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bench_fake_target.h"

namespace quire::cli::bench {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

BenchReport ReportOf(FakeTarget& target, int num_requests, const ServerSide& server = {}) {
  BenchSettings settings;
  settings.num_prompts = num_requests;
  settings.max_concurrency = 1;
  settings.workload = "random";
  return MakeReport(
      settings, RunLoad({.num_requests = num_requests, .max_concurrency = 1}, target, {}), server);
}

TEST(Report, C111_TakesCountsFromUsageNotFromMessages) {
  // 9 tokens in messages of 3, at 100, 130 and 160 ms.
  FakeTarget target([](int) -> std::vector<LoadEvent> {
    return {TokensAt(100, 3), TokensAt(130, 3), TokensAt(160, 3), FinishedAt(160, 9), DoneAt(170)};
  });
  const BenchReport report = ReportOf(target, 1);
  EXPECT_EQ(report.total_output_tokens, 9);
  EXPECT_EQ(report.total_input_tokens, 10);
  EXPECT_EQ(report.total_cached_tokens, 4);
  EXPECT_DOUBLE_EQ(report.tpot_ms.mean, 60.0 / 8);
  EXPECT_DOUBLE_EQ(report.ttft_ms.mean, 100);
  EXPECT_DOUBLE_EQ(report.e2el_ms.mean, 170);
  EXPECT_EQ(report.itl_ms.count, 2);
  EXPECT_DOUBLE_EQ(report.itl_ms.mean, 30);
}

TEST(Report, C111_LeavesOneTokenAnswersOutOfTpot) {
  FakeTarget target(
      [](int request) { return request == 0 ? Answer(50, 10, 1) : Answer(50, 10, 3); });
  const BenchReport report = ReportOf(target, 2);
  EXPECT_EQ(report.completed, 2);
  EXPECT_EQ(report.tpot_ms.count, 1);
  EXPECT_DOUBLE_EQ(report.tpot_ms.mean, 10);
  EXPECT_EQ(report.ttft_ms.count, 2);
}

TEST(Report, C113_PercentilesAreOverAllSamplesTogether) {
  // Half of the requests are slow, as if from a slow worker: p99 is the slow ones', not an average.
  FakeTarget target([](int request) { return Answer(request % 2 == 0 ? 10 : 1000, 1, 1); });
  const BenchReport report = ReportOf(target, 100);
  EXPECT_EQ(report.ttft_ms.count, 100);
  EXPECT_EQ(report.ttft_ms.p50, 10);
  EXPECT_EQ(report.ttft_ms.p90, 1000);
  EXPECT_EQ(report.ttft_ms.p99, 1000);
  EXPECT_NE(report.ttft_ms.p99, report.ttft_ms.mean);
  EXPECT_EQ(ReportJson(report)["num_samples_ttft_ms"], 100);
}

TEST(Report, CountsTheBusiestSecond) {
  FakeTarget target([](int) -> std::vector<LoadEvent> {
    return {TokensAt(100, 1), TokensAt(1100, 5), TokensAt(1900, 6), FinishedAt(2100, 12),
            DoneAt(2100)};
  });
  EXPECT_EQ(ReportOf(target, 1).max_output_tokens_per_s, 11);
}

TEST(Report, JsonHasTheKeysOfVllmBenchServe) {
  FakeTarget target([](int) { return Answer(10, 10, 3); });
  const auto object = ReportJson(
      ReportOf(target, 2, {.peak_kv_blocks = 7, .kv_blocks_capacity = 64, .preemptions = 3}));
  for (const char* key : {"date",
                          "endpoint_type",
                          "backend",
                          "label",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "errors",
                          "peak_kv_blocks",
                          "preemptions"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
  for (const char* metric : {"ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"}) {
    for (const char* prefix : {"mean_", "median_", "std_", "p99_"}) {
      EXPECT_TRUE(object.contains(std::string(prefix) + metric)) << prefix << metric;
    }
  }
  EXPECT_EQ(object["request_rate"], "inf") << "as vllm writes a closed loop";
  EXPECT_EQ(object["peak_kv_blocks"], 7);
  EXPECT_EQ(object["preemptions"], 3);
  EXPECT_DOUBLE_EQ(object["duration"], 0.06);
  EXPECT_DOUBLE_EQ(object["output_throughput"], 100);
}

TEST(Report, HasNoNanWithoutAnySuccess) {
  FakeTarget target([](int) -> std::vector<LoadEvent> {
    return {DoneAt(0, absl::InternalError("out of order"))};
  });
  const BenchReport report = ReportOf(target, 3);
  EXPECT_EQ(report.failed, 3);
  EXPECT_THAT(ReportJson(report).dump(), Not(HasSubstr("null,\"median")));
  std::ostringstream table;
  PrintReport(report, table);
  EXPECT_THAT(table.str(), ContainsRegex("  INTERNAL +3, first: out of order\n"));
  EXPECT_THAT(table.str(), ContainsRegex("time to first token +0 +- +- +- +- +- +-\n"));
  EXPECT_EQ(ReportJson(report)["errors"]["INTERNAL"], 3);
  EXPECT_EQ(ReportJson(report)["error_messages"]["INTERNAL"], "out of order");
  EXPECT_THAT(table.str(), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace quire::cli::bench
