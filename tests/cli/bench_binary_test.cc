// The real binary measuring a toy model with random weights in its own process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cli/atomic_file.h"
#include "quire_process.h"
#include "tests/fakes/toy_model.h"
#include "zip_fixture.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BenchBinaryTest : public ::testing::Test {
 protected:
  ProcessEnd Bench(const std::string& command, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"bench", command, "--model", model_, "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunBinary(arguments);
  }

  const TemporaryFolder folder_;
  const std::string model_ = fakes::ToyModel().WriteGguf(folder_.path());
};

TEST_F(BenchBinaryTest, ThroughputCountsWhatWasAskedFor) {
  const std::string file = folder_.path() + "/throughput.json";
  const ProcessEnd end =
      Bench("throughput", {"--num-blocks", "64", "--workload", "fixed", "--num-prompts", "12",
                           "--input-len", "20", "--output-len", "8", "--json", "--output", file});
  ASSERT_EQ(end.exit_status, 0) << end.err;
  const auto report = nlohmann::json::parse(end.out);
  EXPECT_EQ(report, nlohmann::json::parse(*ReadFile(file)));
  EXPECT_EQ(report["num_requests"], 12);
  EXPECT_EQ(report["total_num_tokens"], 12 * 28);
  EXPECT_EQ(report["total_output_tokens"], 12 * 8);
  EXPECT_EQ(report["computed_tokens"], 12 * 27) << "the last token of an answer is not computed";
  EXPECT_EQ(report["kv_blocks_capacity"], 64);
  EXPECT_EQ(report["preemptions"], 0);
  EXPECT_GT(report["tokens_per_second"], 0);
  EXPECT_LE(report["mean_kv_blocks"], report["peak_kv_blocks"].get<double>() + 1e-6);
  EXPECT_GT(report["kv_useful_share"], 0.5);
  EXPECT_LE(report["kv_useful_share"], 1);
  EXPECT_THAT(end.err, HasSubstr("12 completed, 0 failed"));
}

TEST_F(BenchBinaryTest, StepLogFitsTheSimulator) {
  const std::string log = folder_.path() + "/steps.jsonl";
  const ProcessEnd bench =
      Bench("throughput", {"--num-blocks", "64", "--workload", "fixed", "--num-prompts", "12",
                           "--input-len", "20", "--output-len", "8", "--step-log", log});
  ASSERT_EQ(bench.exit_status, 0) << bench.err;
  const ProcessEnd simulation =
      RunBinary({"simulate", "--workload", "fixed", "--num-prompts", "12", "--input-len", "20",
                 "--output-len", "8", "--fit-steps", log, "--json"});
  ASSERT_EQ(simulation.exit_status, 0) << simulation.err;
  EXPECT_GT(nlohmann::json::parse(simulation.out)["duration"], 0);
}

TEST_F(BenchBinaryTest, ThroughputRunsConversations) {
  const ProcessEnd end =
      Bench("throughput", {"--num-blocks", "64", "--workload", "multi-turn", "--num-prompts", "2",
                           "--turns", "3", "--input-len", "20", "--output-len", "8", "--json"});
  ASSERT_EQ(end.exit_status, 0) << end.err;
  const auto report = nlohmann::json::parse(end.out);
  EXPECT_EQ(report["num_requests"], 6);
  EXPECT_EQ(report["total_input_tokens"], 2 * (20 + 48 + 76));
  // Of the second turn the first block is cached, of the third the first three.
  EXPECT_EQ(report["total_cached_tokens"], 2 * (16 + 48));
}

TEST_F(BenchBinaryTest, ThroughputFailsWhenRequestsDo) {
  const ProcessEnd end =
      Bench("throughput", {"--num-blocks", "64", "--workload", "fixed", "--num-prompts", "3",
                           "--input-len", "4000", "--json"});
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_EQ(nlohmann::json::parse(end.out)["errors"]["INVALID_ARGUMENT"], 3);
  EXPECT_THAT(end.err, HasSubstr("3 requests failed"));
}

TEST_F(BenchBinaryTest, CacheModesDifferInCostAndNotInTokens) {
  const std::string plot = folder_.path() + "/cache.svg";
  // A sequence may have 2048 tokens, 128 blocks: room for two of them.
  const ProcessEnd end =
      Bench("cache", {"--num-blocks", "300", "--turns", "4", "--requests", "8", "--input-len", "20",
                      "--prefix-len", "64", "--max-tokens", "8", "--plot", plot, "--json"});
  ASSERT_EQ(end.exit_status, 0) << end.err;
  std::map<std::string, nlohmann::json> modes;
  std::vector<std::string> names;
  for (const nlohmann::json& line : end.JsonLines()) {
    names.push_back(line["mode"]);
    modes[names.back()] = line;
    EXPECT_TRUE(line["tokens_identical"]);
    for (const char* workload : {"conversation", "shared_prefix"}) {
      const auto& run = line[workload];
      EXPECT_GT(run["output_tokens_per_second"], 0);
      EXPECT_GT(run["mean_ttft_ms"], 0);
      EXPECT_GT(run["mean_bytes_useful"], 0);
      EXPECT_GE(run["mean_bytes_reserved"], run["mean_bytes_useful"]);
    }
    EXPECT_EQ(line["conversation"]["output_tokens"], 4 * 8);
    EXPECT_EQ(line["shared_prefix"]["output_tokens"], 8 * 8);
  }
  ASSERT_THAT(names, ElementsAre("no_cache", "static", "paged", "paged_prefix", "paged_session"));

  const auto computed = [&](const char* mode, const char* workload) {
    return modes[mode][workload]["computed_tokens"].get<int>();
  };
  // Prompts of 20, 48, 76 and 104 tokens. Every answer computes 7 of its 8 tokens.
  EXPECT_EQ(computed("paged", "conversation"), 248 + 4 * 7);
  EXPECT_EQ(computed("static", "conversation"), 248 + 4 * 7);
  EXPECT_EQ(computed("no_cache", "conversation"), 8 * 248 + 4 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7));
  // 1, 3 and 5 blocks are found again.
  EXPECT_EQ(computed("paged_prefix", "conversation"), 248 + 4 * 7 - (1 + 3 + 5) * 16);
  EXPECT_EQ(computed("paged_session", "conversation"), 248 + 4 * 7 - (1 + 3 + 5) * 16);
  // Of 84 tokens 64 are common, and computed once.
  EXPECT_EQ(computed("paged", "shared_prefix"), 8 * (84 + 7));
  EXPECT_EQ(computed("paged_prefix", "shared_prefix"), 64 + 8 * (20 + 7));

  const auto reserved = [&](const char* mode, const char* workload) {
    return modes[mode][workload]["mean_bytes_reserved"].get<double>();
  };
  EXPECT_GT(reserved("static", "conversation"), 15 * reserved("paged", "conversation"));
  EXPECT_LT(reserved("paged_prefix", "shared_prefix"), reserved("paged", "shared_prefix"));
  EXPECT_LE(modes["static"]["shared_prefix"]["mean_batch"].get<double>(), 2 + 1e-6);
  const double static_peak = modes["static"]["conversation"]["peak_bytes_active"];
  EXPECT_EQ(static_peak, reserved("static", "conversation")) << "all that it will ever need";

  EXPECT_THAT(*ReadFile(plot), HasSubstr("paged_session"));
  EXPECT_THAT(end.err, HasSubstr("tokens/s"));
}

TEST_F(BenchBinaryTest, CachePrintsATable) {
  const ProcessEnd end = Bench("cache", {"--num-blocks", "64", "--turns", "2", "--requests", "2",
                                         "--input-len", "5", "--max-tokens", "2"});
  ASSERT_EQ(end.exit_status, 0) << end.err;
  for (const char* text : {"conversation", "shared prefix", "no_cache", "paged_session", "reserved",
                           "The tokens of all answers are the same"}) {
    EXPECT_THAT(end.out, HasSubstr(text));
  }
}

TEST_F(BenchBinaryTest, CachePrintsNothingWhenARequestFails) {
  const ProcessEnd end = Bench("cache", {"--num-blocks", "64", "--prefix-len", "4000", "--json"});
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_EQ(end.out, "");
  EXPECT_THAT(end.err, HasSubstr("mode no_cache: request 0 failed"));
}

TEST_F(BenchBinaryTest, CacheNeedsAllModes) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--no-prefix-caching"},
           {"--session-cache-share", "0"},
           {"--session-cache-share", "0.01", "--num-blocks", "64"}}) {
    const ProcessEnd end = Bench("cache", flags);
    EXPECT_EQ(end.exit_status, 2);
    EXPECT_THAT(end.err, HasSubstr(flags.front()));
    EXPECT_THAT(end.out, IsEmpty());
  }
}

}  // namespace
}  // namespace quire::cli
