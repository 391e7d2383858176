#include "cli/bench/throughput_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace quire::cli::bench {
namespace {

using ::testing::HasSubstr;

BenchReport Report() {
  BenchReport report;
  report.settings.workload = "alpaca";
  report.settings.seed = 3;
  report.duration_s = 2;
  report.completed = 4;
  report.failed = 1;
  report.errors = {{"INTERNAL", {.count = 1, .first_message = "it broke"}}};
  report.total_input_tokens = 100;
  report.total_cached_tokens = 32;
  report.total_output_tokens = 60;
  return report;
}

constexpr BlockUsage kUsage{.capacity = 64,
                            .block_size = 16,
                            .bytes_per_block = 4096,
                            .mean_reserved_blocks = 10,
                            .mean_useful_slots = 144,
                            .peak_active_blocks = 12,
                            .mean_batch = 2.5,
                            .computed_tokens = 124,
                            .preemptions = 5,
                            .recomputed_tokens = 9};

TEST(ThroughputReport, HasTheKeysOfVllmBenchThroughputAndTheBlocks) {
  const auto object = ThroughputJson(Report(), kUsage);
  EXPECT_EQ(object["elapsed_time"], 2);
  EXPECT_EQ(object["num_requests"], 4);
  EXPECT_EQ(object["total_num_tokens"], 160);
  EXPECT_EQ(object["requests_per_second"], 2);
  EXPECT_EQ(object["tokens_per_second"], 80);
  EXPECT_EQ(object["output_tokens_per_second"], 30);
  EXPECT_EQ(object["total_cached_tokens"], 32);
  EXPECT_EQ(object["label"], "alpaca");
  EXPECT_EQ(object["errors"]["INTERNAL"], 1);
  EXPECT_EQ(object["error_messages"]["INTERNAL"], "it broke");
  EXPECT_EQ(object["kv_blocks_capacity"], 64);
  EXPECT_EQ(object["mean_kv_blocks"], 10);
  EXPECT_EQ(object["peak_kv_blocks"], 12);
  EXPECT_DOUBLE_EQ(object["kv_useful_share"], 0.9);
  EXPECT_EQ(object["mean_batch"], 2.5);
  EXPECT_EQ(object["computed_tokens"], 124);
  EXPECT_EQ(object["preemptions"], 5);
  EXPECT_EQ(object["recomputed_tokens"], 9);
}

TEST(ThroughputReport, PrintsTheSame) {
  std::ostringstream out;
  PrintThroughput(Report(), kUsage, out);
  for (const char* text :
       {"alpaca, seed 3", "4 completed, 1 failed", "INTERNAL", "100 in (32 cached), 60 out",
        "80.0 tokens/s, of these 30.0 output", "10.0 of 64 on average, 12 at most",
        "90.0 % of their slots", "124 tokens, 9 of them again after 5 preemptions"}) {
    EXPECT_THAT(out.str(), HasSubstr(text));
  }
}

TEST(ThroughputReport, HasNoNanWithoutAnyRequest) {
  EXPECT_EQ(ThroughputJson({}, {})["tokens_per_second"], 0);
  EXPECT_EQ(ThroughputJson({}, {})["kv_useful_share"], 0);
}

}  // namespace
}  // namespace quire::cli::bench
