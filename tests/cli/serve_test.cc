// The real binary as a server and its clients, on a toy model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <memory>

#include "cli/atomic_file.h"
#include "quire_process.h"
#include "server/client.h"
#include "toy_files.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Tells when a file has been renamed into a folder.
class FileWatch {
 public:
  explicit FileWatch(const std::string& folder) : fd_(inotify_init1(IN_CLOEXEC)) {
    EXPECT_GE(inotify_add_watch(fd_, folder.c_str(), IN_MOVED_TO), 0);
  }
  ~FileWatch() { close(fd_); }
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  void WaitFor(const std::string& name) {
    alignas(inotify_event) std::array<char, 4096> events{};
    while (true) {
      const ssize_t count = read(fd_, events.data(), events.size());
      ASSERT_GT(count, 0);
      for (ssize_t at = 0; at < count;) {
        const auto* event = reinterpret_cast<const inotify_event*>(events.data() + at);
        if (name == event->name) return;
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
  }

 private:
  const int fd_;
};

class ServeTest : public ::testing::Test {
 protected:
  void StartServer(std::vector<std::string> flags = {}, const std::string& num_blocks = "64",
                   const ProcessSetup& setup = {}) {
    std::vector<std::string> arguments = {"serve",    "--model",      files_.gguf(), "--port",
                                          "0",        "--http-port",  "0",           "--num-blocks",
                                          num_blocks, "--ready-file", ready_file_};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    FileWatch ready(files_.folder());
    server_ = std::make_unique<QuireProcess>(arguments, setup);
    if (setup.err_path.empty()) {
      ASSERT_TRUE(server_->WaitForOutput("serving ")) << server_->Wait().err;
    } else {
      ready.WaitFor("ready.json");
    }
    const auto content = ReadFile(ready_file_);
    ASSERT_TRUE(content.ok()) << content.status();
    ready_ = nlohmann::json::parse(*content);
    address_ = "127.0.0.1:" + std::to_string(ready_["grpc_port"].get<int>());
  }
  ProcessEnd StopServer(int signal = SIGTERM) {
    server_->Signal(signal);
    return server_->Wait();
  }
  ProcessEnd AtServer(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--server", address_});
    return RunBinary(arguments);
  }

  const ToyFiles files_;
  const std::string ready_file_ = files_.folder() + "/ready.json";
  std::unique_ptr<QuireProcess> server_;
  nlohmann::json ready_;
  std::string address_;
};

TEST_F(ServeTest, ServesUntilASignalAndTellsScriptsWhere) {
  std::ofstream(ready_file_) << "{\"stale\": true}";
  ASSERT_NO_FATAL_FAILURE(StartServer());
  EXPECT_GT(ready_["grpc_port"], 0);
  EXPECT_GT(ready_["http_port"], 0);
  EXPECT_GT(ready_["pid"], 0);
  const ProcessEnd answer = AtServer({"generate", "--prompt", "x\n", "--temperature", "0"});
  EXPECT_EQ(answer.exit_status, 0) << answer.err;
  EXPECT_EQ(answer.out, kAlphabet + "\n");

  const ProcessEnd end = StopServer();
  EXPECT_EQ(end.exit_status, 0) << end.err;
  EXPECT_EQ(end.out, "") << "serve prints nothing on stdout";
  EXPECT_FALSE(std::filesystem::exists(ready_file_));
  for (const char* row : {"model", "weights", "KV pool", "64 blocks of 16 tokens", "kernels",
                          "thread", "start-up", "gRPC", "/metrics"}) {
    EXPECT_THAT(end.err, HasSubstr(row));
  }
}

TEST_F(ServeTest, AnswersAsTheModelInThisProcessDoes) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const std::vector<std::string> request = {"generate", "--prompt-ids", "50,60,70", "--temperature",
                                            "1",        "--seed",       "5",        "--max-tokens",
                                            "20",       "--logprobs",   "3",        "--json"};
  std::vector<std::string> local = request;
  local.insert(local.end(), {"--model", files_.gguf(), "--threads", "2", "--num-blocks", "16"});
  nlohmann::json remote_line = AtServer(request).JsonLines().at(0);
  nlohmann::json local_line = RunBinary(local).JsonLines().at(0);
  for (nlohmann::json* line : {&remote_line, &local_line}) line->erase("timings");
  EXPECT_EQ(remote_line, local_line) << "every bit of the log-probabilities";
}

TEST_F(ServeTest, ASecondSignalEndsRunningRequests) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  // Refused; the server goes on.
  EXPECT_EQ(AtServer({"generate", "--prompt-ids", "999999"}).exit_status, 1);

  QuireProcess endless({"generate", "--server", address_, "--prompt", "x\n", "--ignore-eos"});
  ASSERT_TRUE(endless.WaitForOutput("abc"));
  server_->Signal(SIGINT);
  ASSERT_TRUE(server_->WaitForOutput("draining"));
  server_->Signal(SIGINT);
  const ProcessEnd end = server_->Wait();
  EXPECT_EQ(end.exit_status, 0) << end.err;
  endless.Wait();  // Ended by its length or with ABORTED, whichever came first.
}

TEST_F(ServeTest, SaysWhenThePortIsTaken) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const ProcessEnd second = RunBinary({"serve", "--model", files_.gguf(), "--no-http", "--port",
                                       std::to_string(ready_["grpc_port"].get<int>())});
  EXPECT_EQ(second.exit_status, 1);
  EXPECT_THAT(second.err, HasSubstr(std::to_string(ready_["grpc_port"].get<int>())));
}

TEST_F(ServeTest, SaysWhenTheReadyFileCannotBeWritten) {
  const ProcessEnd end =
      RunBinary({"serve", "--model", files_.gguf(), "--no-http", "--port", "0", "--threads", "1",
                 "--num-blocks", "64", "--ready-file", files_.folder() + "/none/ready.json"});
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_THAT(end.err, HasSubstr("--ready-file: cannot write " + files_.folder() +
                                 "/none/ready.json: No such file or directory"));
}

TEST_F(ServeTest, RetriesWhenTheServerIsFullUnlessTold) {
  ASSERT_NO_FATAL_FAILURE(StartServer(
      {"--max-num-seqs", "1", "--max-num-batched-tokens", "64", "--max-queued-requests", "1"}));
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += "{\"prompt_ids\": [13], \"temperature\": 0}\n";
  const std::string input = files_.folder() + "/in.jsonl";
  std::ofstream(input) << lines;
  const ProcessEnd patient = AtServer({"generate", "--input", input, "--json"});
  EXPECT_EQ(patient.exit_status, 0) << patient.err;
  ASSERT_THAT(patient.JsonLines(), SizeIs(12));
  for (const auto& line : patient.JsonLines()) EXPECT_EQ(line["text"], kAlphabet);

  // A running request that nobody interrupts keeps the only place.
  QuireProcess endless({"generate", "--server", address_, "--prompt", "x\n", "--ignore-eos"});
  ASSERT_TRUE(endless.WaitForOutput("abc"));
  const ProcessEnd hasty = AtServer({"generate", "--input", input, "--json", "--no-retry"});
  EXPECT_EQ(hasty.exit_status, 1);
  EXPECT_THAT(hasty.err, HasSubstr("RESOURCE_EXHAUSTED"));
}

TEST_F(ServeTest, C110_BenchCountsWhatTheServerCounts) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const std::string file = files_.folder() + "/bench.json";
  const ProcessEnd end =
      AtServer({"bench", "serve", "--concurrency", "4", "--num-prompts", "12", "--input-len", "20",
                "--output-len", "8", "--num-warmups", "2", "--json", "--output", file});
  EXPECT_EQ(end.exit_status, 0) << end.err;
  const auto report = nlohmann::json::parse(end.out);
  EXPECT_EQ(report, nlohmann::json::parse(*ReadFile(file)));
  EXPECT_EQ(report["completed"], 12);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["total_input_tokens"], 240);
  EXPECT_EQ(report["total_output_tokens"], 96);
  EXPECT_EQ(report["max_concurrent_requests"], 4);
  EXPECT_EQ(report["max_concurrency"], 4);
  EXPECT_EQ(report["request_rate"], "inf");
  EXPECT_EQ(report["kv_blocks_capacity"], 64);
  EXPECT_EQ(report["preemptions"], 0);
  EXPECT_EQ(report["num_samples_ttft_ms"], 12);
  EXPECT_GT(report["output_throughput"], 0);
  EXPECT_THAT(end.err, HasSubstr("time to first token"));
}

TEST_F(ServeTest, BenchSharesPrefixesAndRunsAnOpenLoop) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const ProcessEnd end =
      AtServer({"bench", "serve", "--request-rate", "200", "--num-prompts", "20", "--workload",
                "shared-prefix", "--prefix-len", "64", "--num-prefixes", "1", "--input-len", "4",
                "--output-len", "2", "--json"});
  EXPECT_EQ(end.exit_status, 0) << end.err;
  const auto report = nlohmann::json::parse(end.out);
  EXPECT_EQ(report["completed"], 20);
  EXPECT_EQ(report["total_input_tokens"], 20 * 68);
  EXPECT_GT(report["total_cached_tokens"], 0);
  EXPECT_EQ(report["request_rate"], 200);
}

TEST_F(ServeTest, C110_BenchFailsWhenRequestsDo) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const ProcessEnd end = AtServer({"bench", "serve", "--num-prompts", "3", "--num-warmups", "2",
                                   "--input-len", "4000", "--output-len", "1", "--json"});
  EXPECT_EQ(end.exit_status, 1);
  const auto report = nlohmann::json::parse(end.out);
  EXPECT_EQ(report["completed"], 0);
  EXPECT_EQ(report["errors"]["INVALID_ARGUMENT"], 3);
  EXPECT_THAT(end.err, HasSubstr("warning: 2 of 2 warm-ups failed, first: INVALID_ARGUMENT: "));
  EXPECT_THAT(report["error_messages"]["INVALID_ARGUMENT"], HasSubstr("prompt of 4000 tokens"));
}

TEST_F(ServeTest, ALimitOfTheServerNamesItsFlag) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const ProcessEnd end = AtServer({"generate", "--prompt", "x", "--logprobs", "-1", "--json"});
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_THAT(end.err, HasSubstr("this server allows at most 20 (--max-logprobs)"));
}

TEST_F(ServeTest, InfoTellsEverySetting) {
  ASSERT_NO_FATAL_FAILURE(StartServer({"--max-num-seqs", "8", "--session-cache-share", "0.25",
                                       "--session-ttl", "90", "--target-itl-ms", "12.5",
                                       "--client-quantum", "64", "--max-in-flight-steps", "7"}));
  const ProcessEnd json = AtServer({"info", "--json"});
  ASSERT_EQ(json.exit_status, 0) << json.err;
  const auto object = nlohmann::json::parse(json.out);
  EXPECT_EQ(object["num_blocks"], 64);
  EXPECT_EQ(object["max_num_seqs"], 8);
  EXPECT_EQ(object["settings"]["max-num-seqs"], "8");
  EXPECT_EQ(object["settings"]["block-size"], "16");
  EXPECT_EQ(object["settings"]["port"], std::to_string(ready_["grpc_port"].get<int>()));
  for (const char* flag :
       {"model", "served-model-name", "host", "http-port", "threads", "num-blocks",
        "kv-cache-memory", "max-num-batched-tokens", "max-prefill-tokens", "max-model-len",
        "weight-dtype", "kv-cache-dtype", "no-prefix-caching", "scheduling-policy",
        "insecure-listen", "ready-file", "drain-timeout", "log-level"}) {
    EXPECT_TRUE(object["settings"].contains(flag)) << flag;
  }
  const auto& settings = object["settings"];
  EXPECT_EQ(settings["session-cache-share"], "0.25");
  EXPECT_EQ(settings["session-ttl"], "1m30s");
  EXPECT_EQ(settings["target-itl-ms"], "12.5");
  EXPECT_EQ(settings["client-quantum"], "64");
  EXPECT_EQ(settings["max-in-flight-steps"], "7");
  EXPECT_EQ(object["model"]["num_layers"], 2);
  EXPECT_GT(object["weight_bytes"], 0);
  EXPECT_EQ(object["stats"]["free"], 64);
  EXPECT_THAT(AtServer({"info"}).out, HasSubstr("0 active, 0 cached, 64 free"));
}

TEST_F(ServeTest, ASessionContinuesFromTheCommandLine) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const std::vector<std::string> turn = {
      "generate", "--session-id", "tale",         "--client-id", "me",    "--temperature",
      "0",        "--ignore-eos", "--max-tokens", "20",          "--json"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = turn;
    all.insert(all.end(), more.begin(), more.end());
    return AtServer(all);
  };
  const ProcessEnd first = with({"--prompt-ids", "50,60,70,50,60,70,50,60,70,50,60,70,50"});
  ASSERT_EQ(first.exit_status, 0) << first.err;
  const ProcessEnd second = with({"--prompt-ids", "61,62", "--continue-session"});
  ASSERT_EQ(second.exit_status, 0) << second.err;
  const auto usage = second.JsonLines().at(0)["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 13 + 20 + 2);
  EXPECT_EQ(usage["cached_tokens"], 32);

  // The same as keys of a line; a session that is not there fails that line alone.
  const std::string input = files_.folder() + "/in.jsonl";
  std::ofstream(input)
      << "{\"prompt_ids\": [63], \"session_id\": \"tale\", \"continue_session\": true}\n"
      << "{\"prompt_ids\": [63], \"session_id\": \"none\", \"continue_session\": true}\n";
  const ProcessEnd lines =
      AtServer({"generate", "--input", input, "--json", "--max-tokens", "2", "--ignore-eos"});
  EXPECT_EQ(lines.exit_status, 1);
  ASSERT_THAT(lines.JsonLines(), SizeIs(1));
  EXPECT_EQ(lines.JsonLines()[0]["usage"]["prompt_tokens"], 35 + 20 + 1);
  EXPECT_THAT(lines.err, HasSubstr(input + ":2: NOT_FOUND"));
  const auto stats = nlohmann::json::parse(AtServer({"info", "--json"}).out)["stats"];
  EXPECT_EQ(stats["sessions"], 1);
  EXPECT_EQ(stats["leased"], 3) << "57 of 58 tokens are computed";
}

TEST_F(ServeTest, AChatKeepsItsBlocksBetweenTurns) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const auto client = server::Client::Connect({.target = address_});
  ASSERT_TRUE(client.ok()) << client.status();
  const auto session_hits = [&] {
    return (*client)->GetStats()->hit_tokens_by_source().at("session");
  };
  const ProcessEnd end = RunBinary({"chat", "--server", address_, "--session"}, "hi\nand again\n");
  EXPECT_EQ(end.exit_status, 0) << end.err;
  EXPECT_GT(session_hits(), 0);
  EXPECT_EQ((*client)->GetStats()->blocks().sessions(), 0) << "ended when it left";

  // Each conversation has a session of its own; one that was named is not the chat's to end.
  EXPECT_EQ(RunBinary({"chat", "--server", address_, "--session"}, "hi\n/reset\nhi\n").exit_status,
            0);
  EXPECT_EQ((*client)->GetStats()->blocks().sessions(), 0) << "/reset ends one, too";
  EXPECT_EQ(RunBinary({"chat", "--server", address_, "--session-id", "x"}, "hi\n").exit_status, 0);
  EXPECT_EQ((*client)->GetStats()->blocks().sessions(), 1);
  EXPECT_EQ(AtServer({"chat", "--session", "--session-id", "x"}).exit_status, 2);
  const ProcessEnd continued = AtServer({"chat", "--session-id", "x", "--continue-session"});
  EXPECT_EQ(continued.exit_status, 2);
  EXPECT_THAT(continued.err, HasSubstr("--continue-session"));
}

TEST_F(ServeTest, DemoShowsAnswersTableAndBlocks) {
  ASSERT_NO_FATAL_FAILURE(StartServer({}, "256"));
  const ProcessEnd end = AtServer({"demo", "--max-tokens", "12"});
  EXPECT_EQ(end.exit_status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("[7] abcdefghijkl\n"));
  for (const char* part :
       {"question", "cached", "tokens/s", "before", "during", "after", "0 active"}) {
    EXPECT_THAT(end.out, HasSubstr(part));
  }
  EXPECT_THAT(end.out, Not(HasSubstr("\x1b["))) << "no escape sequences in a pipe";

  const ProcessEnd json = AtServer({"demo", "--max-tokens", "12", "--json"});
  EXPECT_EQ(json.exit_status, 0) << json.err;
  const auto object = nlohmann::json::parse(json.out);
  ASSERT_THAT(object["requests"], SizeIs(8));
  for (const auto& request : object["requests"]) {
    EXPECT_EQ(request["text"], "abcdefghijkl");
    EXPECT_GT(request["cached_tokens"], 0) << "the system prompt is shared";
  }
  for (const auto& [when, pool] : object["blocks"].items()) {
    EXPECT_EQ(pool["active"].get<int>() + pool["cached"].get<int>() + pool["free"].get<int>(), 256)
        << when;
    EXPECT_THAT(pool["picture"].get<std::string>(), SizeIs(128)) << when;
  }
  EXPECT_EQ(object["blocks"]["after"]["active"], 0);
}

TEST_F(ServeTest, CtrlCStopsAChatAnswerAndFreesItsBlocks) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  QuireProcess chat({"chat", "--server", address_, "--ignore-eos"}, {.input = "hi\n"});
  ASSERT_TRUE(chat.WaitForOutput("abc"));
  chat.Signal(SIGINT);
  const ProcessEnd end = chat.Wait();  // The end of its input ends it.
  EXPECT_EQ(end.exit_status, 0) << end.err;
  // Nothing is left behind: the pool drains at once.
  const ProcessEnd stopped = StopServer();
  EXPECT_EQ(stopped.exit_status, 0);
}

TEST_F(ServeTest, C130_TheFullestBatchFitsIntoWhatStartUpPlanned) {
  // Every place taken, every sequence as long as it may be, with log-probabilities.
  ASSERT_NO_FATAL_FAILURE(StartServer(
      {"--max-num-seqs", "8", "--max-model-len", "512", "--max-num-batched-tokens", "4096"},
      "256"));
  const std::int64_t before = server_->MemoryOf("VmHWM");
  nlohmann::json line = {{"prompt_ids", std::vector<int>(500, 40)},
                         {"ignore_eos", true},
                         {"logprobs", 20},
                         {"prompt_logprobs", 20},
                         {"max_tokens", 100}};
  std::string lines;
  for (int i = 0; i < 8; ++i) {
    line["prompt_ids"][0] = 40 + i;  // Nothing is shared.
    lines += line.dump() + "\n";
  }
  const std::string input = files_.folder() + "/in.jsonl";
  std::ofstream(input) << lines;
  const ProcessEnd end = AtServer({"generate", "--input", input, "--json"});
  EXPECT_EQ(end.exit_status, 0) << end.err;
  ASSERT_THAT(end.JsonLines(), SizeIs(8));
  for (const auto& answer : end.JsonLines()) {
    EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
    EXPECT_EQ(answer["prompt_logprobs"].size(), 500U);
  }
  EXPECT_LT(server_->MemoryOf("VmHWM") - before, 512 << 20);
  EXPECT_EQ(StopServer().exit_status, 0);
}

TEST_F(ServeTest, C131_UsesTheProcessorsThatItMay) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  int first = 0;
  while (!CPU_ISSET(first, &mine)) ++first;
  ASSERT_NO_FATAL_FAILURE(
      StartServer({}, "64", {.wrapper = {"taskset", "-c", std::to_string(first)}}));
  EXPECT_EQ(nlohmann::json::parse(AtServer({"info", "--json"}).out)["threads"], 1);
  EXPECT_THAT(StopServer().err, Not(HasSubstr("[warning] threads")));

  ASSERT_NO_FATAL_FAILURE(
      StartServer({"--threads", "3"}, "64", {.wrapper = {"taskset", "-c", std::to_string(first)}}));
  EXPECT_EQ(nlohmann::json::parse(AtServer({"info", "--json"}).out)["threads"], 3);
  EXPECT_THAT(StopServer().err, HasSubstr("threads 3 is above the 1 CPUs"));
}

TEST_F(ServeTest, C133_GoesOnWhenNothingCanBeLogged) {
  ASSERT_NO_FATAL_FAILURE(StartServer({"--log-level", "debug"}, "64", {.err_path = "/dev/full"}));
  for (int i = 0; i < 3; ++i) {
    const ProcessEnd answer = AtServer({"generate", "--prompt", "x\n", "--temperature", "0"});
    EXPECT_EQ(answer.out, kAlphabet + "\n") << answer.err;
  }
  EXPECT_EQ(StopServer().exit_status, 0);
}

TEST_F(ServeTest, C134_TextOfUsersIsNoFormat) {
  const std::string wild = "{} {0:d} %n %s {:>99999999}";
  ASSERT_NO_FATAL_FAILURE(StartServer({"--log-level", "debug", "--served-model-name", wild}));
  const ProcessEnd answer =
      AtServer({"generate", "--prompt", wild + "\n[error] forged\n", "--temperature", "0", "--stop",
                wild, "--request-id", "{}{0:d}%n"});
  EXPECT_EQ(answer.out, kAlphabet + "\n") << answer.err;
  const ProcessEnd refused = AtServer({"generate", "--prompt-ids", "999999", "--request-id", "{}"});
  EXPECT_EQ(refused.exit_status, 1);
  const ProcessEnd end = StopServer();
  EXPECT_THAT(end.err, HasSubstr("serving " + wild)) << "literally";
  EXPECT_THAT(end.err, Not(HasSubstr("LOG ERROR")));
  EXPECT_THAT(end.err, Not(HasSubstr("\n[error] forged")));
}

}  // namespace
}  // namespace quire::cli
