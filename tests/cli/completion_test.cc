#include "cli/completion.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire::cli {
namespace {

v1::GenerateResponse DeltaOf(int index, std::vector<int> ids, const std::string& text) {
  v1::GenerateResponse response;
  auto* delta = response.mutable_delta();
  delta->set_index(index);
  for (const int id : ids) delta->add_token_ids(id);
  delta->set_text(text);
  return response;
}

TEST(Completion, JoinsTheDeltasOfEveryBranch) {
  v1::GenerateUnaryResponse answer;
  Accumulate(DeltaOf(1, {4}, "x"), &answer);
  Accumulate(DeltaOf(0, {1, 2}, "ab"), &answer);
  Accumulate(DeltaOf(0, {3}, "c"), &answer);
  v1::GenerateResponse end;
  auto* finished = end.mutable_finished();
  finished->set_index(0);
  finished->set_finish_reason(v1::FINISH_REASON_STOP);
  finished->set_stop_string("c");
  finished->set_seed(18446744073709551615U);
  finished->mutable_usage()->set_prompt_tokens(5);
  finished->mutable_usage()->set_cached_tokens(4);
  finished->mutable_usage()->set_completion_tokens(3);
  finished->mutable_timings()->set_ttft_ms(1.5);
  Accumulate(end, &answer);

  ASSERT_EQ(answer.completions_size(), 2);
  EXPECT_EQ(answer.completions(1).text(), "x");
  const auto line = CompletionJson(7, answer.completions(0), answer);
  EXPECT_EQ(line["request"], 7);
  EXPECT_EQ(line["index"], 0);
  EXPECT_EQ(line["token_ids"], nlohmann::json({1, 2, 3}));
  EXPECT_EQ(line["text"], "abc");
  EXPECT_EQ(line["finish_reason"], "stop");
  EXPECT_EQ(line["stop_reason"], "c");
  EXPECT_EQ(line["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(line["usage"]["cached_tokens"], 4);
  EXPECT_EQ(line["usage"]["completion_tokens"], 3);
  EXPECT_EQ(line["timings"]["ttft_ms"], 1.5);
  EXPECT_EQ(line["seed"], 18446744073709551615U);
  EXPECT_FALSE(line.contains("logprobs"));
  EXPECT_FALSE(line.contains("detail"));
}

TEST(Completion, KeepsAllBitsOfLogprobs) {
  const float logprob = std::nextafter(-1.2345678F, 0.0F);
  v1::GenerateResponse response = DeltaOf(0, {9}, "");
  auto* position = response.mutable_delta()->add_logprobs();
  position->mutable_chosen()->set_token_id(9);
  position->mutable_chosen()->set_logprob(logprob);
  position->mutable_chosen()->set_rank(2);
  auto* top = position->add_top();
  top->set_token_id(3);
  top->set_logprob(-0.5F);
  top->set_rank(1);
  v1::GenerateUnaryResponse answer;
  Accumulate(response, &answer);
  v1::GenerateResponse prompt;
  prompt.mutable_prompt_logprobs()->add_positions();  // Position 0 has no `chosen`.
  *prompt.mutable_prompt_logprobs()->add_positions() = *position;
  Accumulate(prompt, &answer);

  const auto line = nlohmann::json::parse(CompletionJson(0, answer.completions(0), answer).dump());
  EXPECT_EQ(line["logprobs"][0]["logprob"].get<float>(), logprob);
  EXPECT_EQ(line["logprobs"][0]["rank"], 2);
  EXPECT_EQ(line["logprobs"][0]["top"][0]["token_id"], 3);
  EXPECT_TRUE(line["prompt_logprobs"][0].is_null());
  EXPECT_EQ(line["prompt_logprobs"][1]["token_id"], 9);
}

}  // namespace
}  // namespace quire::cli
