#include "cli/bench/cache_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/bench/cache_plot.h"

namespace quire::cli::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CacheRun Run(double duration_s) {
  return {.model_id = "A & B",
          .duration_s = duration_s,
          .output_tokens = 10,
          .mean_ttft_ms = 12.5,
          .max_ttft_ms = 20,
          .usage = {.block_size = 16,
                    .bytes_per_block = 4096,
                    .mean_reserved_blocks = 8,
                    .mean_useful_slots = 64,
                    .peak_active_blocks = 9,
                    .computed_tokens = 1234},
          .answers = {{1, 2, 3}, {4, 5}}};
}

CacheBenchResult Result() {
  CacheBenchResult result;
  for (const CacheMode mode : kCacheModes) {
    result.modes.push_back({.mode = mode, .conversation = Run(2), .shared_prefix = Run(4)});
  }
  return result;
}

TEST(CacheBench, AcceptsEqualAnswersOnly) {
  CacheBenchResult result = Result();
  EXPECT_EQ(CheckSameAnswers(result.modes), absl::OkStatus());
  result.modes[3].shared_prefix.answers[1][1] = 6;
  const absl::Status differs = CheckSameAnswers(result.modes);
  EXPECT_EQ(differs.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(differs.message()),
              HasSubstr("shared prefix: the answer to request 1 in mode paged_prefix differs from "
                        "that in mode no_cache at token 1"));
  result = Result();
  result.modes[1].conversation.answers[0].pop_back();
  EXPECT_THAT(std::string(CheckSameAnswers(result.modes).message()),
              HasSubstr("conversation: the answer to request 0 in mode static differs from that in "
                        "mode no_cache at token 2"));
  result = Result();
  result.modes[4].conversation.answers.pop_back();
  EXPECT_FALSE(CheckSameAnswers(result.modes).ok());
}

TEST(CacheBench, EachModeHasItsOwnEngine) {
  const auto flags = [](CacheMode mode) { return FlagsOfMode({}, mode); };
  EXPECT_TRUE(flags(CacheMode::kNoCache).no_prefix_caching);
  EXPECT_TRUE(flags(CacheMode::kStatic).no_prefix_caching);
  EXPECT_TRUE(flags(CacheMode::kPaged).no_prefix_caching);
  EXPECT_FALSE(flags(CacheMode::kPagedPrefix).no_prefix_caching);
  EXPECT_FALSE(flags(CacheMode::kPagedSession).no_prefix_caching);
  for (const CacheMode mode : kCacheModes) {
    EXPECT_EQ(flags(mode).host.engine.preallocate, mode == CacheMode::kStatic);
  }
}

TEST(CacheBench, JsonHasBothWorkloadsOfAMode) {
  const CacheBenchResult result = Result();
  const auto object = CacheModeJson(result, result.modes[1]);
  EXPECT_EQ(object["mode"], "static");
  EXPECT_EQ(object["tokens_identical"], true);
  EXPECT_EQ(object["model_id"], "A & B");
  EXPECT_EQ(object["conversation"]["output_tokens_per_second"], 5);
  EXPECT_EQ(object["shared_prefix"]["output_tokens_per_second"], 2.5);
  EXPECT_EQ(object["conversation"]["mean_ttft_ms"], 12.5);
  EXPECT_EQ(object["conversation"]["mean_bytes_reserved"], 8 * 4096);
  EXPECT_EQ(object["conversation"]["mean_bytes_useful"], 4 * 4096);
  EXPECT_EQ(object["conversation"]["peak_bytes_active"], 9 * 4096);
  EXPECT_EQ(object["conversation"]["computed_tokens"], 1234);
}

TEST(CacheBench, TableAndPlotShowEveryMode) {
  std::ostringstream out;
  PrintCacheBench(Result(), out);
  const std::string svg = CachePlotSvg(Result());
  for (const CacheMode mode : kCacheModes) {
    EXPECT_THAT(out.str(), HasSubstr(CacheModeName(mode)));
    EXPECT_THAT(svg, HasSubstr(">" + std::string(CacheModeName(mode)) + "<"));
  }
  EXPECT_THAT(out.str(), HasSubstr("32.0 KiB"));
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("A &amp; B"));
  // The longest bar has the full width, and half of what is reserved is useful.
  EXPECT_THAT(svg, HasSubstr("width=\"180.0\" height=\"16\" class=\"bar\""));
  EXPECT_THAT(svg, HasSubstr("width=\"90.0\" height=\"16\" class=\"inner\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(CacheBench, PlotsZerosAsNothing) {
  CacheBenchResult result = Result();
  for (CacheModeResult& mode : result.modes) mode.conversation = mode.shared_prefix = {};
  EXPECT_THAT(CachePlotSvg(result), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace quire::cli::bench
