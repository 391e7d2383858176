// quire simulate, in process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/app.h"
#include "zip_fixture.h"

namespace quire::cli {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class SimulateTest : public ::testing::Test {
 protected:
  ExitCode Run(std::vector<std::string> arguments) {
    out_.str("");
    err_.str("");
    arguments.insert(arguments.begin(), "simulate");
    return RunQuire(
        arguments,
        {.environment = {},
         .console = {
             .out = out_, .err = err_, .out_is_terminal = false, .err_is_terminal = false}});
  }
  std::vector<json> Lines() {
    std::vector<json> lines;
    for (std::string line; std::getline(out_, line);) lines.push_back(json::parse(line));
    return lines;
  }
  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << content;
    return path;
  }

  TemporaryFolder folder_;
  std::stringstream out_, err_;
};

TEST_F(SimulateTest, PrintsALineASystem) {
  ASSERT_EQ(
      Run({"--workload", "fixed", "--num-prompts", "3", "--input-len", "10", "--output-len", "4",
           "--system", "quire,static", "--step-fixed-ms", "100", "--step-prefill-token-us", "10000",
           "--step-decode-sequence-us", "0", "--step-context-token-us", "0", "--json"}),
      ExitCode::kOk)
      << err_.str();
  const std::vector<json> lines = Lines();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["system"], "quire");
  EXPECT_EQ(lines[1]["system"], "static");
  for (const json& line : lines) {
    EXPECT_EQ(line["completed"], 3);
    EXPECT_EQ(line["num_steps"], 4);
    EXPECT_NEAR(line["duration"].get<double>(), 0.1 + 30 * 0.01 + 3 * 0.1, 1e-9);
  }
  EXPECT_NEAR(lines[0]["mean_ttft_ms"].get<double>(), 400, 1e-6);
  EXPECT_NEAR(lines[0]["mean_tpot_ms"].get<double>(), 100, 1e-6);
  EXPECT_NEAR(lines[1]["mean_ttft_ms"].get<double>(), 700, 1e-6);
}

TEST_F(SimulateTest, PrintsATable) {
  ASSERT_EQ(Run({"--workload", "alpaca", "--num-prompts", "20", "--system", "all"}), ExitCode::kOk);
  for (const char* text : {"orca-oracle", "useful of reserved slots", "recomputed tokens"}) {
    EXPECT_THAT(out_.str(), HasSubstr(text));
  }
  EXPECT_EQ(err_.str(), "");
}

TEST_F(SimulateTest, ReadsATraceAndFitsStepTimes) {
  const std::string trace =
      Write("requests.csv", "arrival_s,prompt_tokens,output_tokens\n0,8,1\n10,8,1\n");
  std::string steps;
  for (int i = 1; i <= 8; ++i) {  // 1 s and 0.5 s a prefill token.
    steps += json({{"prefill_tokens", i},
                   {"decode_sequences", i % 3},
                   {"context_tokens", 10 * i * i},
                   {"seconds", 1 + 0.5 * i}})
                 .dump() +
             "\n";
  }
  ASSERT_EQ(Run({"--workload", "trace", "--trace", trace, "--fit-steps",
                 Write("steps.jsonl", steps), "--json"}),
            ExitCode::kOk)
      << err_.str();
  EXPECT_NEAR(Lines()[0]["mean_ttft_ms"].get<double>(), 5000, 1e-3);
}

TEST_F(SimulateTest, WrongInputIsRefusedByName) {
  const auto expect_refused = [&](std::vector<std::string> arguments, const char* message) {
    EXPECT_EQ(Run(std::move(arguments)), ExitCode::kUsage);
    EXPECT_THAT(err_.str(), HasSubstr(message));
    EXPECT_EQ(out_.str(), "");
  };
  const std::string trace = Write("bad.jsonl", "{\"prompt_tokens\": 3}\n");
  expect_refused({"--workload", "trace", "--trace", trace},
                 "bad.jsonl: line 1: \"output_tokens\" is missing");
  expect_refused({"--workload", "trace"}, "--workload trace needs --trace");
  expect_refused({"--trace", trace}, "--trace needs --workload trace");
  expect_refused({"--workload", "trace", "--trace", "/none.csv"}, "/none.csv");
  expect_refused({"--system", "quire,tgi"}, "got \"tgi\"");
  expect_refused({"--replicas", "1001"}, "--replicas");
  expect_refused({"--request-rate", "1e-300"},
                 "--request-rate: must be 0 or a number in [1e-09, 1000000000]");
  expect_refused({"--workload", "multi-turn", "--think-time", "1e300"},
                 "--think-time: must be a number of seconds in [0, 1000000000]");
  expect_refused({"--kv-slots", "15"},
                 "--kv-slots must be in [16, 2147483647] with --block-size 16, got 15");
  expect_refused({"--kv-slots", "2147483648"},
                 "--kv-slots: must be a whole number in [2, 2147483647]");
  expect_refused({"--kv-slots", "2147483647", "--block-size", "1"},
                 "--kv-slots / --block-size x --replicas: 2147483647 x 1 blocks do not fit");
  expect_refused({"--num-blocks", "67109", "--replicas", "1000"},
                 "--num-blocks x --replicas: 67109 x 1000 blocks do not fit into a simulation, "
                 "which holds at most 67108864");
  expect_refused({"--block-size", "12"}, "block-size");
  expect_refused({"--step-fixed-ms", "-1"}, "--step-fixed-ms");
  expect_refused({"--report", folder_.path() + "/page.html", "--python", "/no/python"},
                 "install python3-matplotlib");
}

TEST_F(SimulateTest, FlagsThatTheWorkloadDoesNotUseAreRefused) {
  const std::string trace = Write("t.jsonl", "{\"prompt_tokens\": 3, \"output_tokens\": 1}\n");
  const auto error_of = [&](std::vector<std::string> arguments) {
    EXPECT_EQ(Run(std::move(arguments)), ExitCode::kUsage);
    return err_.str();
  };
  for (const char* flag : {"--prefix-len", "--num-prefixes"}) {
    EXPECT_THAT(error_of({"--workload", "multi-turn", flag, "4"}),
                HasSubstr(std::string(flag) + " needs --workload shared-prefix"));
  }
  for (const char* flag : {"--turns", "--think-time"}) {
    EXPECT_THAT(error_of({"--workload", "shared-prefix", flag, "4"}),
                HasSubstr(std::string(flag) + " needs --workload multi-turn"));
  }
  for (const char* flag : {"--num-prompts", "--request-rate", "--input-len", "--output-len",
                           "--input-sigma", "--output-sigma", "--n"}) {
    EXPECT_THAT(error_of({"--workload", "trace", "--trace", trace, flag, "2"}),
                HasSubstr(std::string(flag) + " cannot be used with --workload trace"));
  }
}

TEST_F(SimulateTest, TheSlowestWorkloadsEnd) {
  ASSERT_EQ(Run({"--workload", "multi-turn", "--num-prompts", "2", "--turns", "3", "--request-rate",
                 "1e-9", "--think-time", "1e9", "--json"}),
            ExitCode::kOk)
      << err_.str();
  const json line = Lines()[0];
  EXPECT_EQ(line["completed"], 6);
  EXPECT_GT(line["duration"], 1e8);
}

TEST_F(SimulateTest, AFitThatIsNoModelIsNamedByItsFile) {
  std::string steps;
  for (int i = 1; i <= 8; ++i) {  // 0.5 s a prefill token and nothing else.
    steps += json({{"prefill_tokens", i},
                   {"decode_sequences", 0},
                   {"context_tokens", 0},
                   {"seconds", 0.5 * i}})
                 .dump() +
             "\n";
  }
  EXPECT_EQ(Run({"--num-prompts", "1", "--fit-steps", Write("steps.jsonl", steps)}),
            ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("steps.jsonl: the best fit is "));
  EXPECT_THAT(err_.str(), HasSubstr("0.5 s a prefill token"));
}

TEST_F(SimulateTest, TheTableTellsOfRequestsThatEndedEarly) {
  ASSERT_EQ(Run({"--workload", "fixed", "--num-prompts", "1", "--input-len", "20", "--output-len",
                 "100", "--kv-slots", "32"}),
            ExitCode::kOk)
      << err_.str();
  const std::string table = out_.str();
  EXPECT_THAT(table, ContainsRegex("requests finished +0 of 1\n"));
  EXPECT_THAT(table, ContainsRegex("ended early +1\n"));
  EXPECT_THAT(table, ContainsRegex("refused +0\n"));
  EXPECT_THAT(table, ContainsRegex("output tokens/s +-\n"));
  EXPECT_THAT(table, ContainsRegex("TTFT: mean / p99 +-\n"));
}

TEST_F(SimulateTest, TellsOfRefusedRequests) {
  const std::string trace =
      Write("long.jsonl", "{\"prompt_tokens\": 9000, \"output_tokens\": 1}\n");
  ASSERT_EQ(Run({"--workload", "trace", "--trace", trace, "--json"}), ExitCode::kOk);
  EXPECT_EQ(Lines()[0]["refused"], 1);
  EXPECT_THAT(err_.str(), HasSubstr("max_model_len of 2048"));
}

}  // namespace
}  // namespace quire::cli
