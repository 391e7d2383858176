#include "cli/request_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/request_fields.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<RequestLine>> Parse(std::string_view content,
                                               const v1::GenerateRequest& defaults = {}) {
  return ParseRequestLines(content, "in.jsonl", defaults);
}

TEST(RequestLines, ReadsEveryKindOfPrompt) {
  const auto lines =
      Parse(R"({"prompt": "Hi", "max_tokens": 3, "temperature": 0})"
            "\n\n"
            R"({"prompt_ids": [1, 2, 3], "seed": 18446744073709551615, "stop": ["a", "b"]})"
            "\r\n"
            R"({"messages": [{"role": "user", "content": "Hello"}], "logit_bias": {"5": -1.5}})");
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 3U);
  EXPECT_EQ((*lines)[0].request.text().text(), "Hi");
  EXPECT_EQ((*lines)[0].request.sampling().max_tokens(), 3);
  EXPECT_EQ((*lines)[0].request.sampling().temperature(), 0);
  EXPECT_TRUE((*lines)[0].request.sampling().has_temperature());
  EXPECT_EQ((*lines)[1].line, 2);
  EXPECT_THAT((*lines)[1].request.token_ids().ids(), ElementsAre(1, 2, 3));
  EXPECT_EQ((*lines)[1].request.sampling().seed(), 18446744073709551615U);
  EXPECT_THAT((*lines)[1].request.sampling().stop(), ElementsAre("a", "b"));
  EXPECT_EQ((*lines)[2].line, 3);
  EXPECT_EQ((*lines)[2].request.chat().messages(0).content(), "Hello");
  EXPECT_EQ((*lines)[2].request.sampling().logit_bias().at(5), -1.5);
}

TEST(RequestLines, LaysFieldsOverTheDefaults) {
  v1::GenerateRequest defaults;
  defaults.mutable_sampling()->set_max_tokens(7);
  defaults.mutable_sampling()->set_top_k(4);
  defaults.mutable_sampling()->add_stop("default");
  const auto lines =
      Parse(R"({"prompt": "a", "max_tokens": 9, "stop": ["line"], "top_k": null, "priority": -2})",
            defaults);
  ASSERT_TRUE(lines.ok()) << lines.status();
  const v1::GenerateRequest& request = lines->front().request;
  EXPECT_EQ(request.sampling().max_tokens(), 9);
  EXPECT_EQ(request.sampling().top_k(), 4);
  EXPECT_THAT(request.sampling().stop(), ElementsAre("line"));
  EXPECT_EQ(request.priority(), -2);
}

TEST(RequestLines, ErrorsNameFileLineAndKey) {
  struct Case {
    const char* line;
    const char* message;
  };
  for (const Case& c : {
           Case{R"({"prompt": "a", "top_kk": 1})", R"(in.jsonl:2: unknown key "top_kk")"},
           Case{R"({"prompt": "a", "top_k": 1.5})", "in.jsonl:2: top_k: must be a whole number"},
           Case{R"({"prompt": "a", "top_k": "3"})", "top_k: must be a whole number"},
           Case{R"({"prompt": "a", "top_k": 2147483648})", "top_k: must be a whole number"},
           Case{R"({"prompt": "a", "top_k": -2147483649})", "top_k: must be a whole number"},
           Case{R"({"prompt": "a", "seed": -1})", "seed: must be a whole number"},
           Case{R"({"prompt": "a", "temperature": "hot"})", "temperature: must be a number"},
           Case{R"({"prompt": "a", "ignore_eos": 1})", "ignore_eos: must be true or false"},
           Case{R"({"prompt": "a", "stop": "x"})", "stop: must be a list"},
           Case{R"({"prompt": "a", "stop": [1]})", "stop: must be a text"},
           Case{R"({"prompt": "a", "logit_bias": {"x": 1}})", R"(logit_bias: "x" is not a token)"},
           Case{R"({"prompt": "a", "logit_bias": [1]})", "logit_bias: must be an object"},
           Case{R"({"prompt": "a", "sampling": {}})", R"(unknown key "sampling")"},
           Case{R"({"prompt": 1})", "prompt: must be a text"},
           Case{R"({"prompt_ids": [1, -1]})", "prompt_ids[1]: must be a token id"},
           Case{R"({"prompt_ids": [1.5]})", "prompt_ids[0]: must be a token id"},
           Case{R"({"prompt_ids": [1], "add_special": true})", "add_special: applies to a text"},
           Case{R"({"messages": [{"role": "user", "name": "x"}]})", R"(unknown key "name")"},
           Case{R"({"messages": [{"content": "x"}]})", "messages[0].role is missing"},
           Case{R"({"messages": "x"})", "messages: must be a list"},
           Case{R"({"prompt": "a", "prompt_ids": [1]})", "exactly one of"},
           Case{R"({"max_tokens": 1})", "exactly one of"},
           Case{R"([1])", "must be a JSON object"},
           Case{R"({"prompt": )", "is not valid JSON"},
           Case{"{\"prompt\": \"\xff\"}", "is not valid JSON"},
           Case{R"({"prompt": "a", "temperature": 1e999})", "beyond the range of double"},
           Case{R"({"messages": [{"role": "user"}]})", "messages[0].content is missing"},
           Case{R"({"prompt": "a", "temperature": 9})", "temperature must be in [0, 2], got 9"},
           Case{R"({"prompt": "a", "n": 2, "temperature": 0})", "n must be 1 when temperature"},
           Case{R"({"prompt": "a", "min_tokens": 3, "max_tokens": 2})", "min_tokens (3) must not"},
           Case{R"({"prompt": "a", "request_id": "a b"})", "request_id must be"},
           Case{R"({"prompt": "a", "continue_session": true})", "session_id is missing"},
           Case{R"({"prompt_ids": [[1]]})", "prompt_ids[0]: must be a token id, got an array"},
       }) {
    const auto lines = Parse(std::string("{\"prompt\": \"fine\"}\n") + c.line);
    ASSERT_FALSE(lines.ok()) << c.line;
    EXPECT_THAT(lines.status().message(), HasSubstr(c.message));
    EXPECT_THAT(lines.status().message(), HasSubstr("in.jsonl:2: ")) << c.line;
  }
}

// What a line holds is shown in errors without walking into it.
TEST(RequestFile, DeeplyNestedValuesAreRefused) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const char* key : {"prompt_ids", "max_tokens", "stop", "logit_bias", "seed", "messages"}) {
    const auto lines = Parse(std::string(R"({"prompt": "a", ")") + key + "\": " + deep + "}");
    ASSERT_FALSE(lines.ok()) << key;
    EXPECT_LT(lines.status().message().size(), 200U) << key;
  }
}

TEST(RequestFields, EveryFieldHasHelp) {
  for (const std::string& name : RequestFieldNames()) {
    EXPECT_NE(RequestFieldHelp(name), "") << name;
  }
}

class RequestFlagsTest : public ::testing::Test {
 protected:
  void Parse(std::vector<std::string> arguments) {
    CLI::App app;
    AddRequestFlags(app, &request_);
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
  }
  std::string Error(const std::vector<std::string>& arguments) {
    try {
      Parse(arguments);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }
  v1::GenerateRequest request_;
};

TEST_F(RequestFlagsTest, AreTheFieldsInKebabCase) {
  Parse({"--top-k",
         "-1",
         "--temperature",
         "0.5",
         "--stop",
         "a,b",
         "--stop",
         "-c",
         "--logit-bias",
         "5=-100",
         "--logit-bias",
         "7=2",
         "--allowed-token-ids",
         "1,2",
         "--ignore-eos",
         "--no-detokenize",
         "--seed",
         "18446744073709551615",
         "--cache-salt",
         "s",
         "--no-add-special",
         "--min-tokens",
         "2"});
  const v1::SamplingParams& sampling = request_.sampling();
  EXPECT_EQ(sampling.top_k(), -1);
  EXPECT_EQ(sampling.temperature(), 0.5);
  EXPECT_THAT(sampling.stop(), ElementsAre("a,b", "-c"));
  EXPECT_EQ(sampling.logit_bias().at(5), -100);
  EXPECT_EQ(sampling.logit_bias().at(7), 2);
  EXPECT_THAT(sampling.allowed_token_ids(), ElementsAre(1, 2));
  EXPECT_TRUE(sampling.ignore_eos());
  EXPECT_TRUE(sampling.has_detokenize());
  EXPECT_FALSE(sampling.detokenize());
  EXPECT_FALSE(sampling.has_skip_special_tokens());
  EXPECT_EQ(sampling.seed(), 18446744073709551615U);
  EXPECT_EQ(request_.cache_salt(), "s");
  EXPECT_TRUE(request_.text().has_add_special());
  EXPECT_FALSE(request_.text().add_special());
}

TEST_F(RequestFlagsTest, C135_RefusesWildValuesByName) {
  EXPECT_THAT(Error({"--top-k", "12abc"}), HasSubstr("--top-k"));
  EXPECT_THAT(Error({"--top-k", "1099511627776"}), HasSubstr("--top-k: must be a whole number"));
  EXPECT_THAT(Error({"--temperature", "nan"}), HasSubstr("--temperature"));
  EXPECT_THAT(Error({"--logit-bias", "5"}), HasSubstr("--logit-bias: \"5\" is not ID=BIAS"));
  EXPECT_THAT(Error({"--stop", "\xff"}), HasSubstr("--stop: is not valid UTF-8"));
  EXPECT_NE(Error({"--max-tokens", "1", "--max-tokens", "2"}), "");
}

TEST(RequestFields, AnErrorOfAFieldIsSaidOfItsFlag) {
  EXPECT_EQ(AsFlag("top_p must be in (0, 1], got 2"), "--top-p must be in (0, 1], got 2");
  EXPECT_EQ(AsFlag("stop[1] is empty"), "--stop[1] is empty");
}

TEST_F(RequestFlagsTest, LeaveOutWhatACommandHasNoUseFor) {
  CLI::App app;
  AddRequestFlags(app, &request_, {"n", "detokenize"});
  EXPECT_EQ(app.get_option_no_throw("--n"), nullptr);
  EXPECT_EQ(app.get_option_no_throw("--detokenize"), nullptr);
  EXPECT_NE(app.get_option_no_throw("--top-k"), nullptr);
}

TEST(TextLines, ReadsTextsOnly) {
  EXPECT_THAT(*ParseTextLines("{\"text\": \"a\"}\n{\"text\": \"\"}\n", "t"), ElementsAre("a", ""));
  EXPECT_THAT(ParseTextLines("{\"texts\": 1}", "t").status().message(), HasSubstr("t:1: unknown"));
  EXPECT_THAT(ParseTextLines("{}", "t").status().message(), HasSubstr("needs \"text\""));
  EXPECT_THAT(ParseTextLines("{\"text\": 1}", "t").status().message(), HasSubstr("text: must be"));
}

}  // namespace
}  // namespace quire::cli
