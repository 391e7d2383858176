// The real binary on a toy model, without a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "quire_process.h"
#include "toy_files.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class BinaryTest : public ::testing::Test {
 protected:
  std::vector<std::string> WithModel(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin() + 1,
                     {"--model", files_.gguf(), "--threads", "1", "--num-blocks", "64"});
    return arguments;
  }
  std::string Write(const std::string& name, const std::string& content) const {
    const std::string path = files_.folder() + "/" + name;
    std::ofstream(path) << content;
    return path;
  }

  const ToyFiles files_;
};

TEST_F(BinaryTest, GeneratesText) {
  const ProcessEnd end =
      RunBinary(WithModel({"generate", "--prompt", "x\n", "--temperature", "0"}));
  EXPECT_EQ(end.exit_status, 0) << end.err;
  EXPECT_EQ(end.out, kAlphabet + "\n");
}

TEST_F(BinaryTest, GeneratesJson) {
  const ProcessEnd end =
      RunBinary(WithModel({"generate", "--prompt-ids", "13", "--temperature", "0", "--max-tokens",
                           "3", "--logprobs", "2", "--seed", "7", "--json"}));
  ASSERT_EQ(end.exit_status, 0) << end.err;
  const auto lines = end.JsonLines();
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0]["request"], 0);
  EXPECT_EQ(lines[0]["index"], 0);
  EXPECT_EQ(lines[0]["text"], "abc");
  EXPECT_EQ(lines[0]["token_ids"], nlohmann::json({100, 101, 102}));
  EXPECT_EQ(lines[0]["finish_reason"], "length");
  EXPECT_EQ(lines[0]["usage"],
            nlohmann::json({{"prompt_tokens", 1}, {"cached_tokens", 0}, {"completion_tokens", 3}}));
  EXPECT_EQ(lines[0]["seed"], 7);
  EXPECT_THAT(lines[0]["logprobs"], SizeIs(3));
  EXPECT_THAT(lines[0]["logprobs"][0]["top"], SizeIs(2));
  EXPECT_EQ(lines[0]["logprobs"][0]["token_id"], 100);
  EXPECT_TRUE(lines[0]["timings"].contains("ttft_ms"));
}

TEST_F(BinaryTest, GeneratesEveryLineOfAFileAndReportsTheRefusedOnes) {
  const std::string input = Write(
      "in.jsonl", R"({"prompt": "x\n", "max_tokens": 2, "temperature": 0})"
                  "\n"
                  R"({"prompt_ids": [999999]})"
                  "\n"
                  R"({"prompt_ids": [13], "max_tokens": 4, "n": 2, "temperature": 1, "top_k": 1})"
                  "\n"
                  R"({"messages": [{"role": "user", "content": "hi"}]})"
                  "\n");
  const ProcessEnd end = RunBinary(WithModel(
      {"generate", "--input", input, "--temperature", "0", "--concurrency", "2", "--json"}));
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_THAT(end.err, HasSubstr("error: " + input + ":2: INVALID_ARGUMENT: token_ids[0] is"));
  const auto lines = end.JsonLines();
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_EQ(lines[0]["request"], 0);
  EXPECT_EQ(lines[0]["text"], "ab");
  EXPECT_EQ(lines[1]["request"], 2);
  EXPECT_EQ(lines[1]["text"], "abcd");
  EXPECT_EQ(lines[2]["request"], 2);
  EXPECT_EQ(lines[2]["index"], 1);
  EXPECT_EQ(lines[3]["request"], 3);
  EXPECT_EQ(lines[3]["text"], kAlphabet);
  EXPECT_EQ(lines[3]["finish_reason"], "stop");
}

TEST_F(BinaryTest, ReadsRequestsAndTextsFromStandardInput) {
  const ProcessEnd end =
      RunBinary(WithModel({"generate", "--input", "-", "--temperature", "0", "--max-tokens", "2"}),
                "{\"prompt\": \"x\\n\"}\n{\"prompt\": \"y\\n\", \"max_tokens\": 1}\n");
  EXPECT_EQ(end.exit_status, 0) << end.err;
  EXPECT_EQ(end.out,
            "--- stdin:1, answer 0: 2 tokens, length\nab\n"
            "--- stdin:2, answer 0: 1 token, length\na\n");
  const ProcessEnd texts =
      RunBinary({"tokenize", "--model", files_.gguf(), "--input", "-"}, "{\"text\": \"z\"}\n");
  EXPECT_EQ(texts.out, "125\n") << texts.err;
}

TEST_F(BinaryTest, SaysAfterHowLongItGaveUp) {
  const ProcessEnd end = RunBinary(
      WithModel({"generate", "--prompt", "x\n", "--ignore-eos", "--timeout", "0.000001"}));
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_THAT(end.err, HasSubstr("error: DEADLINE_EXCEEDED: not answered within 1us (--timeout)"));
}

TEST_F(BinaryTest, C136_TokenizesWithNothingButTheTokenizer) {
  Write("tokenizer.json", files_.toy().TokenizerJson());
  Write("tokenizer_config.json", files_.toy().TokenizerConfigJson());
  const std::string input =
      Write("texts.jsonl", "{\"text\": \"zq\"}\n{\"text\": \"<|im_end|>z\"}\n");
  for (const std::string& model : {files_.folder(), files_.gguf()}) {
    const ProcessEnd plain = RunBinary({"tokenize", "--model", model, "--input", input, "--json"});
    ASSERT_EQ(plain.exit_status, 0) << plain.err;
    const auto lines = plain.JsonLines();
    ASSERT_THAT(lines, SizeIs(2));
    EXPECT_EQ(lines[0], nlohmann::json({{"ids", {125, 116}}}));
    EXPECT_GT(lines[1]["ids"].size(), 2U) << "control tokens in text are plain text";

    const ProcessEnd special =
        RunBinary({"tokenize", "--model", model, "<|im_end|>z", "--parse-special"});
    EXPECT_EQ(special.out, "2 125\n");
  }
}

TEST_F(BinaryTest, PerplexityIsTheMeanOverAllPredictedTokens) {
  const std::string text = Write("text", "zq zq xw qj <|im_end|> zk qz vj");
  const auto perplexity = [&](const std::string& context) {
    const ProcessEnd end =
        RunBinary(WithModel({"perplexity", "--file", text, "--context", context, "--json"}));
    EXPECT_EQ(end.exit_status, 0) << end.err;
    return end.JsonLines().back();
  };
  // The same text, scored window by window through generate.
  const ProcessEnd tokens =
      RunBinary({"tokenize", "--model", files_.gguf(), "--input",
                 Write("t.jsonl", R"({"text": "zq zq xw qj <|im_end|> zk qz vj"})"), "--json"});
  const auto ids = tokens.JsonLines()[0]["ids"].get<std::vector<int>>();
  double nll = 0;
  int predicted = 0;
  for (std::size_t begin = 0; begin < ids.size(); begin += 8) {
    std::string window;
    for (std::size_t i = begin; i < std::min(begin + 8, ids.size()); ++i) {
      window += (window.empty() ? "" : ",") + std::to_string(ids[i]);
    }
    const ProcessEnd end = RunBinary(WithModel({"generate", "--prompt-ids", window, "--max-tokens",
                                                "1", "--prompt-logprobs", "0", "--json"}));
    ASSERT_EQ(end.exit_status, 0) << end.err;
    const auto lines = end.JsonLines();
    for (const auto& position : lines[0]["prompt_logprobs"]) {
      if (position.is_null()) continue;
      nll -= position["logprob"].get<double>();
      ++predicted;
    }
  }
  const nlohmann::json result = perplexity("8");
  EXPECT_EQ(result["predicted"], predicted);
  EXPECT_NEAR(result["mean_nll"].get<double>(), nll / predicted, 1e-6);
  EXPECT_NEAR(result["perplexity"].get<double>(), std::exp(nll / predicted), 1e-4);
  EXPECT_EQ(perplexity("1000")["predicted"], static_cast<int>(ids.size()) - 1);
  // A window may fill the context.
  const ProcessEnd full = RunBinary(WithModel(
      {"perplexity", "--file", text, "--context", "8", "--max-model-len", "8", "--json"}));
  ASSERT_EQ(full.exit_status, 0) << full.err;
  EXPECT_EQ(full.JsonLines().back(), result);
  EXPECT_EQ(RunBinary(WithModel({"perplexity", "--file", "/none", "--json"})).exit_status, 2);
}

TEST_F(BinaryTest, InspectsTheModel) {
  const ProcessEnd end = RunBinary({"model", "inspect", files_.gguf(), "--json"});
  ASSERT_EQ(end.exit_status, 0) << end.err;
  const auto object = nlohmann::json::parse(end.out);
  EXPECT_EQ(object["num_layers"], 2);
  EXPECT_EQ(object["num_kv_heads"], 2);
  EXPECT_EQ(object["kv_bytes_per_token"]["f16"], 2 * 2 * 2 * 16 * 2);
  EXPECT_GT(object["tensor_types"]["F32"]["tensors"], 10);
  const ProcessEnd table = RunBinary({"model", "inspect", files_.gguf()});
  EXPECT_THAT(table.out, HasSubstr("KV per token, f16"));
  const ProcessEnd plan = RunBinary({"plan", "--model", files_.gguf(), "--json"});
  EXPECT_EQ(nlohmann::json::parse(plan.out)["bytes_per_token"], 2 * 2 * 2 * 16 * 2);
}

TEST_F(BinaryTest, ChatRemembersUntilReset) {
  const std::vector<std::string> chat =
      WithModel({"chat", "--temperature", "0", "--max-tokens", "4"});
  const ProcessEnd end = RunBinary(chat, "hi\nagain\n/reset\nonce more\n");
  EXPECT_EQ(end.exit_status, 0) << end.err;
  EXPECT_EQ(end.out, "abcd\nabcd\nabcd\n");
  EXPECT_THAT(RunBinary(chat, "/help\n").err, HasSubstr("/reset"));
  EXPECT_THAT(RunBinary(chat, "/exit\nhi\n").out, IsEmpty());
}

TEST_F(BinaryTest, ChatTellsTheWayOutOfAFullContext) {
  const std::vector<std::string> chat =
      WithModel({"chat", "--temperature", "0", "--max-tokens", "4", "--max-model-len", "160"});
  const std::string full = "hi\n" + std::string(400, 'x') + "\n";
  const ProcessEnd left = RunBinary(chat, full + "/exit\n");
  EXPECT_EQ(left.exit_status, 1);
  EXPECT_THAT(left.err, HasSubstr("(/reset starts a new conversation)"));
  const ProcessEnd reset = RunBinary(chat, full + "/reset\nhi\n/exit\n");
  EXPECT_EQ(reset.exit_status, 0) << "the last conversation went well";
  EXPECT_EQ(reset.out, "abcd\n\nabcd\n");
}

TEST_F(BinaryTest, ChatReportsARefusedTurn) {
  const ProcessEnd end =
      RunBinary(WithModel({"chat", "--temperature", "0", "--max-model-len", "40"}),
                std::string(200, 'x') + "\n");
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_THAT(end.err, HasSubstr("error:"));
  EXPECT_THAT(end.err, Not(HasSubstr("/reset"))) << "it would not help";
}

TEST_F(BinaryTest, C136_NamesWhatIsMissingInAModel) {
  const ProcessEnd missing =
      RunBinary({"generate", "--model", files_.folder() + "/none.gguf", "--prompt", "x"});
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_THAT(missing.err, HasSubstr("none.gguf"));
  const std::string empty = files_.folder() + "/empty";
  std::filesystem::create_directories(empty);
  const ProcessEnd folder = RunBinary({"generate", "--model", empty, "--prompt", "x"});
  EXPECT_EQ(folder.exit_status, 1);
  EXPECT_THAT(folder.err, HasSubstr("config.json"));
}

TEST_F(BinaryTest, C128_RefusesAPoolThatHoldsNothing) {
  const ProcessEnd end = RunBinary(
      {"generate", "--model", files_.gguf(), "--kv-cache-memory", "100", "--prompt", "x"});
  EXPECT_NE(end.exit_status, 0);
  EXPECT_THAT(end.err, HasSubstr("kv-cache-memory"));
}

}  // namespace
}  // namespace quire::cli
