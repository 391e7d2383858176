#include "cli/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
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
                                                          {"simulate"},
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
           {{"--block-size", "3"}, "error: --block-size must be a power of two in [1, 256], got 3"},
           {{"--block-size", "17"}, "--block-size must be"},
           {{"--block-size", "512"}, "[1, 256]"},
           {{"--block-size", "12abc"}, "got \"12abc\""},
           {{"--max-num-seqs", "0"}, "--max-num-seqs: must be a whole number in [1, 65536]"},
           {{"--max-num-seqs", "1099511627776"}, "--max-num-seqs"},
           {{"--max-num-batched-tokens", "0"}, "--max-num-batched-tokens"},
           {{"--max-num-batched-tokens", "16777217"}, "in [1, 16777216]"},
           {{"--max-num-seqs", "8", "--max-num-batched-tokens", "7"},
            "--max-num-batched-tokens must be in [--max-num-seqs, 16777216]"},
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
           {{"--chat-template", "nope"},
            "--chat-template: must be one of chatml|smollm2|qwen2|llama3, got \"nope\""},
           {{"--no-such-flag"}, "error: unknown flag \"--no-such-flag\""},
           {{"stray"}, "error: unknown argument \"stray\""},
           {{"--port"}, "error: --port needs a value"},
           {{"--port", "1", "--port", "2"}, "error: --port may be given only once"},
           {{"--ready-file", "/none/ready"}, "--ready-file: cannot write /none/ready: No such"},
           {{"--ready-file", "/"}, "--ready-file: cannot write /: it is a folder"},
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
  ExpectRefused({}, "error: needs a command\nTry: quire --help");
  ExpectRefused({"serf", "--model", "m"}, "error: unknown command \"serf\"\nTry: quire --help");
  ExpectRefused({"bench", "serf"}, "error: unknown command \"serf\"\nTry: quire bench --help");
  ExpectRefused({"--modle", "m"}, "error: unknown flag \"--modle\"");
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

// The server does not exist: what is wrong in itself must be refused before it is looked for.
TEST_F(AppTest, RequestsAreCheckedBeforeAnythingStarts) {
  const auto generate = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"generate", "--server", "x:1", "--prompt", "a"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ExpectRefused(generate({"--temperature", "9"}),
                "error: --temperature must be in [0, 2], got 9\n");
  ExpectRefused(generate({"--top-p", "0"}), "error: --top-p must be in (0, 1], got 0\n");
  ExpectRefused(generate({"--n", "2", "--temperature", "0"}), "--n must be 1 when temperature");
  ExpectRefused(generate({"--stop", ""}), "--stop[0] is empty");
  ExpectRefused(generate({"--request-id", "a b"}), "--request-id must be");
  ExpectRefused(generate({"--continue-session"}), "--session-id is missing");
  ExpectRefused(generate({"--timeout", "0"}), "--timeout must be above 0");
  for (const std::vector<std::string>& only_in_json : {std::vector<std::string>{"--logprobs", "1"},
                                                       {"--prompt-logprobs", "0"},
                                                       {"--no-detokenize"}}) {
    ExpectRefused(generate(only_in_json), "need --json");
  }
  ExpectRefused({"chat", "--server", "x:1", "--temperature", "9"}, "--temperature must be");
  ExpectRefused({"chat", "--server", "x:1", "--system", "\xff"}, "--system is not valid UTF-8");
  ExpectRefused({"tokenize", "--model", "/none", "a\xff"}, "TEXT is not valid UTF-8 at byte 1");
}

TEST_F(AppTest, CommandsOfferOnlyFlagsOfUse) {
  for (const char* flag : {"--n", "--logprobs", "--continue-session", "--max-queued-requests"}) {
    ExpectRefused({"chat", "--model", "m", flag, "1"}, std::string("unknown flag \"") + flag);
  }
  for (const char* flag : {"--chat-template", "--max-queued-requests", "--max-logprobs"}) {
    ExpectRefused({"perplexity", "--model", "m", "--file", "f", flag, "1"},
                  std::string("unknown flag \"") + flag);
  }
}

TEST_F(AppTest, ChecksFilesBeforeTheModel) {
  const auto write = [&](const std::string& name, const std::string& content) {
    std::ofstream(folder_.path() + "/" + name) << content;
    return folder_.path() + "/" + name;
  };
  const std::string empty = write("empty", "");
  ExpectRefused({"perplexity", "--model", "/none", "--file", empty}, empty + " is empty");
  const std::string binary = write("binary", "a\xff");
  ExpectRefused({"perplexity", "--model", "/none", "--file", binary},
                binary + " is not valid UTF-8 at byte 1");
  EXPECT_EQ(Run({"generate", "--model", "/none", "--input", empty}), ExitCode::kOk);
  EXPECT_EQ(err_.str(), empty + " has no requests\n");
  const std::string two = write("two", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
  ExpectRefused({"generate", "--model", "/none", "--input", two, "--request-id", "r"},
                "--request-id names one request, " + two + " has 2");
  const std::string ids = write("ids", "{\"prompt\": \"a\", \"detokenize\": false}\n");
  ExpectRefused({"generate", "--model", "/none", "--input", ids}, ids + ":1: logprobs");
  for (const std::vector<std::string>& output :
       {std::vector<std::string>{"bench", "serve", "--server", "x:1", "--output"},
        {"bench", "throughput", "--model", "/none", "--output"},
        {"bench", "cache", "--model", "/none", "--plot"}}) {
    std::vector<std::string> arguments = output;
    arguments.push_back("/none/x");
    ExpectRefused(arguments, output.back() + ": cannot write /none/x: No such file or directory");
  }
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
  EXPECT_THAT(err_.str(), HasSubstr("127.0.0.1:1 (waited 5s)"));
  // A name with an empty label resolves nowhere, whatever the network.
  EXPECT_EQ(Run({"generate", "--server", "a..b:1", "--prompt", "a"}), ExitCode::kFailed);
  EXPECT_THAT(err_.str(), HasSubstr("a..b:1 (the name of the host does not resolve)"));
}

TEST_F(AppTest, NamesAModelThatIsNotThere) {
  EXPECT_EQ(Run({"model", "inspect", "nope"}), ExitCode::kFailed);
  EXPECT_EQ(err_.str(), "error: nope is no file or folder, nor a known model (smollm2-135m)\n");
}

// The cached file has the right size, so that only its content can tell.
TEST_F(AppTest, ADamagedModelOfTheCacheSaysHowToMendIt) {
  const std::string folder = environment_.quire_home + "/models/smollm2-135m";
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  std::ofstream(path) << "no GGUF";
  std::filesystem::resize_file(path, 98'362'432);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"model", "inspect", "smollm2-135m"},
        {"plan", "--model", "smollm2-135m"},
        {"tokenize", "--model", "smollm2-135m", "a"},
        {"generate", "--model", "smollm2-135m", "--prompt", "a"}}) {
    EXPECT_EQ(Run(command), ExitCode::kFailed);
    EXPECT_THAT(err_.str(), HasSubstr("error: " + path + ": "));
    EXPECT_THAT(err_.str(), HasSubstr("quire model fetch smollm2-135m\n"));
  }
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
