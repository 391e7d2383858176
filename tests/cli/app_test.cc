#include "cli/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "zip_fixture.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

class AppTest : public ::testing::Test {
 protected:
  ExitCode Run(const std::vector<std::string>& arguments) {
    out_.str("");
    err_.str("");
    return RunQuire(
        arguments,
        {.environment = environment_,
         .console = {
             .out = out_, .err = err_, .out_is_terminal = false, .err_is_terminal = false}});
  }
  void ExpectRefused(const std::vector<std::string>& arguments, const std::string& message) {
    EXPECT_EQ(Run(arguments), ExitCode::kUsage) << testing::PrintToString(arguments);
    EXPECT_THAT(err_.str(), HasSubstr(message)) << testing::PrintToString(arguments);
    EXPECT_EQ(out_.str(), "") << "errors go to stderr";
  }

  TemporaryFolder folder_;
  Environment environment_{
      .quire_home = folder_.path() + "/cache", .home = "", .isa = "", .no_color = ""};
  std::ostringstream out_, err_;
};

TEST_F(AppTest, EveryCommandHasHelpWithExamples) {
  const std::vector<std::vector<std::string>> commands = {{},
                                                          {"serve"},
                                                          {"generate"},
                                                          {"chat"},
                                                          {"demo"},
                                                          {"info"},
                                                          {"bench", "serve"},
                                                          {"bench", "throughput"},
                                                          {"bench", "cache"},
                                                          {"perplexity"},
                                                          {"tokenize"},
                                                          {"plan"},
                                                          {"model"},
                                                          {"model", "list"},
                                                          {"model", "fetch"},
                                                          {"model", "inspect"}};
  for (std::vector<std::string> command : commands) {
    command.push_back("--help");
    EXPECT_EQ(Run(command), ExitCode::kOk);
    EXPECT_THAT(out_.str(), HasSubstr("Example")) << testing::PrintToString(command);
    EXPECT_THAT(out_.str(), HasSubstr("  quire "));
    EXPECT_EQ(err_.str(), "");
  }
  EXPECT_EQ(Run({"--help"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("Exit codes:"));
}

TEST_F(AppTest, TellsItsVersion) {
  EXPECT_EQ(Run({"--version"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), testing::MatchesRegex("quire [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

// The model does not exist: a flag must be refused before it is looked for.
TEST_F(AppTest, C135_ServeRefusesWildFlagsBeforeItLoads) {
  struct Case {
    std::vector<std::string> flags;
    const char* message;
  };
  for (const Case& c : std::vector<Case>{
           {{"--block-size", "0"}, "--block-size: must be a whole number in [1, 256], got \"0\""},
           {{"--block-size", "3"}, "block-size"},
           {{"--block-size", "17"}, "block-size"},
           {{"--block-size", "512"}, "[1, 256]"},
           {{"--block-size", "12abc"}, "got \"12abc\""},
           {{"--max-num-seqs", "0"}, "--max-num-seqs: must be a whole number in [1, 65536]"},
           {{"--max-num-seqs", "1099511627776"}, "--max-num-seqs"},
           {{"--max-num-batched-tokens", "0"}, "--max-num-batched-tokens"},
           {{"--max-num-seqs", "8", "--max-num-batched-tokens", "7"}, "max-num-batched-tokens"},
           {{"--num-blocks", "0"}, "--num-blocks: must be a whole number in [1,"},
           {{"--num-blocks", "-5"}, "--num-blocks"},
           {{"--num-blocks", "1099511627776"}, "--num-blocks"},
           {{"--kv-cache-memory", "0"}, "--kv-cache-memory: must be at least 1"},
           {{"--kv-cache-memory", "12abc"}, "--kv-cache-memory: \"12abc\" is not a size"},
           {{"--num-blocks", "4", "--kv-cache-memory", "1MiB"}, "excludes"},
           {{"--max-model-len", "0"}, "--max-model-len"},
           {{"--max-prefill-tokens", "0"}, "--max-prefill-tokens"},
           {{"--threads", "-1"}, "--threads: must be a whole number in [0, 1024]"},
           {{"--threads", "2000"}, "--threads"},
           {{"--port", "65536"}, "--port: must be a whole number in [0, 65535]"},
           {{"--http-port", "x"}, "--http-port"},
           {{"--weight-dtype", "f8"}, "--weight-dtype: must be one of auto|f32|bf16, got \"f8\""},
           {{"--kv-cache-dtype", "int8"}, "--kv-cache-dtype: must be one of auto|f32|f16"},
           {{"--scheduling-policy", "lifo"}, "fcfs|priority"},
           {{"--host", "0.0.0.0"}, "--insecure-listen"},
           {{"--no-such-flag"}, "--no-such-flag"},
           {{"stray"}, "stray"},
       }) {
    std::vector<std::string> arguments = {"serve", "--model", "/nonexistent/model.gguf"};
    arguments.insert(arguments.end(), c.flags.begin(), c.flags.end());
    ExpectRefused(arguments, c.message);
  }
}

TEST_F(AppTest, C135_RefusesAnUnknownIsaBeforeItLoads) {
  environment_.isa = "avx1024";
  ExpectRefused({"serve", "--model", "/nonexistent/model.gguf"}, "QUIRE_ISA");
  EXPECT_THAT(err_.str(), HasSubstr("avx1024"));
}

TEST_F(AppTest, UsageErrorsNameTheCommandsHelp) {
  ExpectRefused({"bench", "serve"}, "Try: quire bench serve --help");
  ExpectRefused({}, "quire --help");
  ExpectRefused({"serf"}, "quire --help");
}

TEST_F(AppTest, GenerateWantsOnePromptAndOnePlace) {
  ExpectRefused({"generate", "--server", "x:1"}, "exactly one of --prompt");
  ExpectRefused({"generate", "--server", "x:1", "--prompt", "a", "--prompt-ids", "1"},
                "exactly one of --prompt");
  ExpectRefused({"generate", "--prompt", "a"}, "either --server HOST:PORT or --model");
  ExpectRefused({"generate", "--server", "x:1", "--model", "m", "--prompt", "a"}, "excludes");
  ExpectRefused({"generate", "--server", "x:1", "--threads", "2", "--prompt", "a"}, "--model");
  ExpectRefused({"generate", "--server", "x:1", "--prompt", "a\xff"}, "UTF-8 at byte 1");
  ExpectRefused({"generate", "--server", "x:1", "--prompt-ids", "1,x"}, "--prompt-ids");
  ExpectRefused({"generate", "--server", "x:1", "--prompt-ids", "1", "--parse-special"},
                "--prompt only");
  ExpectRefused({"generate", "--server", "x:1", "--prompt", "a", "--top-k", "1.5"}, "--top-k");
}

TEST_F(AppTest, GenerateNamesTheLineThatIsWrong) {
  const std::string input = folder_.path() + "/in.jsonl";
  std::ofstream(input) << "{\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"max_token\": 3}\n";
  ExpectRefused({"generate", "--server", "x:1", "--input", input},
                input + ":2: unknown key \"max_token\"");
  ExpectRefused({"generate", "--server", "x:1", "--input", input + "x"}, input + "x");
}

TEST_F(AppTest, SaysWhenAServerIsNotThere) {
  EXPECT_EQ(Run({"generate", "--server", "127.0.0.1:1", "--prompt", "a", "--timeout", "1"}),
            ExitCode::kFailed);
  EXPECT_THAT(err_.str(), HasSubstr("127.0.0.1:1"));
}

TEST_F(AppTest, OfflineForbidsFetching) {
  EXPECT_EQ(Run({"tokenize", "--model", "smollm2-135m", "--offline", "text"}), ExitCode::kFailed);
  EXPECT_THAT(err_.str(), HasSubstr("--offline"));
  EXPECT_EQ(Run({"model", "fetch", "smollm3"}), ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("quire model list"));
}

TEST_F(AppTest, ListsKnownModels) {
  EXPECT_EQ(Run({"model", "list"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("smollm2-135m"));
  EXPECT_EQ(Run({"model", "list", "--json"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("\"present\": false"));
}

TEST_F(AppTest, PlanAnswersForGivenDimensions) {
  EXPECT_EQ(Run({"plan", "--layers", "32", "--kv-heads", "8", "--head-dim", "128", "--dtype",
                 "fp16", "--tokens", "4096", "--memory", "1GiB", "--json"}),
            ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("\"bytes_per_token\": 131072"));
  EXPECT_THAT(out_.str(), HasSubstr("\"total_bytes\": 536870912"));
  EXPECT_THAT(out_.str(), HasSubstr("\"tokens_in_memory\": 8192"));
  EXPECT_EQ(Run({"plan", "--layers", "96", "--hidden-size", "12288", "--tokens", "100"}),
            ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("471,859,200 bytes"));
  EXPECT_EQ(Run({"plan", "--arch", "llama-2-7b", "--tokens", "4096", "--batch", "32"}),
            ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("64.0 GiB"));
  ExpectRefused({"plan"}, "needs --model, --arch");
  ExpectRefused({"plan", "--arch", "gpt-5"}, "llama-2-7b");
  ExpectRefused({"plan", "--layers", "2"}, "--kv-heads");
}

}  // namespace
}  // namespace quire::cli
