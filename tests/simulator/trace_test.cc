#include "simulator/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace quire::simulator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text, TraceFormat format = TraceFormat::kJsonLines) {
  return std::string(AsStd(ParseTrace(text, format, 0).status().message()));
}

TEST(TraceTest, ReadsJsonLinesInTheOrderOfArrival) {
  const auto requests = ParseTrace(
      "{\"arrival_s\": 2.5, \"prompt_tokens\": 10, \"output_tokens\": 3, \"n\": 2}\n\n"
      "{\"prompt_ids\": [5, 6, 7], \"output_ids\": [8, 9]}\n",
      TraceFormat::kJsonLines, 0);
  ASSERT_EQ(requests.status(), absl::OkStatus());
  ASSERT_EQ(requests->size(), 2U);
  EXPECT_EQ((*requests)[0].PromptTokens(), (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ((*requests)[0].output_len, 2);
  EXPECT_EQ((*requests)[0].OutputToken(0, 1), 9);
  EXPECT_EQ((*requests)[1].arrival, absl::Milliseconds(2500));
  EXPECT_EQ((*requests)[1].prompt_len(), 10);
  EXPECT_EQ((*requests)[1].output_len, 3);
  EXPECT_EQ((*requests)[1].num_branches, 2);
}

TEST(TraceTest, ReadsCsvWithMissingCells) {
  const auto requests = ParseTrace(
      "arrival_s, prompt_tokens,output_tokens,session\r\n"
      "0,100,5,\r\n"
      "1.5,20,4,alice\r\n",
      TraceFormat::kCsv, 0);
  ASSERT_EQ(requests.status(), absl::OkStatus());
  ASSERT_EQ(requests->size(), 2U);
  EXPECT_EQ((*requests)[0].prompt_len(), 100);
  EXPECT_EQ((*requests)[1].arrival, absl::Milliseconds(1500));
}

TEST(TraceTest, RequestsWithOnePrefixNameStartWithTheSameTokens) {
  const auto requests = ParseTrace(
      "prompt_tokens,output_tokens,prefix,prefix_tokens\n"
      "12,1,system,8\n"
      "20,1,system,8\n"
      "12,1,other,8\n",
      TraceFormat::kCsv, 0);
  ASSERT_EQ(requests.status(), absl::OkStatus());
  const auto a = (*requests)[0].PromptTokens(), b = (*requests)[1].PromptTokens(),
             c = (*requests)[2].PromptTokens();
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 8, b.begin()));
  EXPECT_NE(a[8], b[8]);
  EXPECT_NE(a[0], c[0]);
}

TEST(TraceTest, ASessionsRequestStartsWithTheTextBeforeIt) {
  const auto requests = ParseTrace(
      "arrival_s,prompt_tokens,output_tokens,session\n"
      "0,10,4,s\n"
      "1,17,4,s\n",
      TraceFormat::kCsv, 0);
  ASSERT_EQ(requests.status(), absl::OkStatus());
  std::vector<TokenId> text = (*requests)[0].PromptTokens();
  for (int i = 0; i < 4; ++i) text.push_back((*requests)[0].OutputToken(0, i));
  std::vector<TokenId> second = (*requests)[1].PromptTokens();
  ASSERT_EQ(second.size(), 17U);
  second.resize(14);
  EXPECT_EQ(second, text);
}

TEST(TraceTest, ErrorsNameTheLineAndTheField) {
  EXPECT_EQ(ErrorOf("{\"prompt_tokens\": 1, \"output_tokens\": 1}\n{\"prompt_tokens\": 3}"),
            "line 2: \"output_tokens\" is missing");
  EXPECT_EQ(ErrorOf("{\"prompt_tokens\": 0, \"output_tokens\": 1}"),
            "line 1: \"prompt_tokens\" must be a whole number in [1, 16777216], got 0");
  EXPECT_EQ(ErrorOf("{\"prompt_tokens\": 1.5, \"output_tokens\": 1}"),
            "line 1: \"prompt_tokens\" must be a whole number in [1, 16777216], got 1.5");
  EXPECT_EQ(ErrorOf("{\"prompt_tokens\": 18446744073709551615, \"output_tokens\": 1}"),
            "line 1: \"prompt_tokens\" must be a whole number in [1, 16777216], got "
            "18446744073709551615");
  EXPECT_EQ(ErrorOf("{\"prompt_tokens\": 1, \"output_tokens\": 1, \"arrival_s\": -1}"),
            "line 1: \"arrival_s\" must be a number in [0, 1000000000], got -1");
  EXPECT_EQ(ErrorOf("{\"prompt_tokens\": 1, \"output_tokens\": 1, \"colour\": 1}"),
            "line 1: \"colour\" is no field of this format");
  EXPECT_EQ(ErrorOf("{\"prompt_ids\": [1, -2], \"output_tokens\": 1}"),
            "line 1: \"prompt_ids\" must hold token ids in [0, 2147483647], got -2");
  EXPECT_EQ(ErrorOf("{\"prompt_ids\": [], \"output_tokens\": 1}"),
            "line 1: \"prompt_ids\" must be an array of token ids, got []");
  EXPECT_EQ(ErrorOf("[1]"), "line 1: not a JSON object");
  EXPECT_EQ(ErrorOf("{\"prompt_tokens\": "), "line 1: not a JSON object");
  EXPECT_EQ(ErrorOf("\n \n"), "the trace has no requests");
  EXPECT_EQ(ErrorOf("prompt_tokens,output_tokens\n1,2,3\n", TraceFormat::kCsv),
            "line 2: 3 cells under 2 names");
  EXPECT_EQ(ErrorOf("prompt_tokens,output_tokens\n7,many\n", TraceFormat::kCsv),
            "line 2: \"output_tokens\" must be a whole number in [1, 16777216], got \"many\"");
  EXPECT_EQ(ErrorOf("n,n\n1,2\n", TraceFormat::kCsv), "line 1: two fields are named \"n\"");
  EXPECT_EQ(ErrorOf("n,\n1,2\n", TraceFormat::kCsv), "line 1: a field has no name");
  EXPECT_EQ(ErrorOf("0,100,5\n1,20,4\n", TraceFormat::kCsv),
            "line 1: the first line must name the fields, as in "
            "arrival_s,prompt_tokens,output_tokens, got 0");
  for (const char* quoted : {"\"n\",output_tokens\n1,2\n", "n,output_tokens\n\"1\",2\n"}) {
    EXPECT_THAT(ErrorOf(quoted, TraceFormat::kCsv), HasSubstr("quotes are not understood"));
  }
}

TEST(TraceTest, NumbersThatAreNoneAreShownAsWritten) {
  const auto error_of_arrival = [](const std::string& cell) {
    return ErrorOf("arrival_s,prompt_tokens,output_tokens\n" + cell + ",1,1\n", TraceFormat::kCsv);
  };
  constexpr char kError[] = "line 2: \"arrival_s\" must be a number in [0, 1000000000], got ";
  EXPECT_EQ(error_of_arrival("nan"), kError + std::string("\"nan\""));
  EXPECT_EQ(error_of_arrival("inf"), kError + std::string("\"inf\""));
  EXPECT_EQ(error_of_arrival("1e999"), kError + std::string("\"1e999\""));
  EXPECT_EQ(error_of_arrival("99999999999999999999"), kError + std::string("1e+20"));
}

TEST(TraceTest, LongValuesAreShortenedInErrors) {
  const std::string text =
      "{\"prompt_tokens\": \"" + std::string(1000, 'x') + "\", \"output_tokens\": 1}";
  EXPECT_LT(ErrorOf(text).size(), 150U);
}

}  // namespace
}  // namespace quire::simulator
