#include "cli/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace quire::cli {
namespace {

using ::testing::ElementsAre;

std::vector<TokenId> Ids(int count) {
  std::vector<TokenId> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(WindowRequests, DoNotOverlapAndKeepAShorterLastOne) {
  const auto requests = WindowRequests(Ids(10), 4);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_THAT(requests[0].token_ids().ids(), ElementsAre(0, 1, 2));
  EXPECT_THAT(requests[1].token_ids().ids(), ElementsAre(4, 5, 6));
  EXPECT_THAT(requests[2].token_ids().ids(), ElementsAre(8));
  EXPECT_THAT(requests[0].sampling().allowed_token_ids(), ElementsAre(3));
  EXPECT_THAT(requests[2].sampling().allowed_token_ids(), ElementsAre(9));
  for (const auto& request : requests) {
    EXPECT_TRUE(request.sampling().has_prompt_logprobs());
    EXPECT_EQ(request.sampling().prompt_logprobs(), 0);
    EXPECT_EQ(request.sampling().max_tokens(), 1);
    EXPECT_TRUE(request.bypass_prefix_cache()) << "each starts from an empty context";
  }
}

TEST(WindowRequests, LeaveOutALastWindowThatPredictsNothing) {
  EXPECT_EQ(WindowRequests(Ids(9), 4).size(), 2U);
  EXPECT_EQ(WindowRequests(Ids(4), 4).size(), 1U);
  EXPECT_EQ(WindowRequests(Ids(1), 4).size(), 0U);
  EXPECT_EQ(WindowRequests({}, 4).size(), 0U);
}

TEST(PerplexitySum, LeavesOutTheFirstPosition) {
  v1::GenerateUnaryResponse answer;
  answer.add_prompt_logprobs();
  for (const float logprob : {-1.0F, -2.0F}) {
    answer.add_prompt_logprobs()->mutable_chosen()->set_logprob(logprob);
  }
  answer.add_completions()->add_logprobs()->mutable_chosen()->set_logprob(-4.5F);
  PerplexitySum sum;
  ASSERT_TRUE(sum.Add(answer).ok());
  EXPECT_EQ(sum.predicted(), 3);
  EXPECT_DOUBLE_EQ(sum.mean_nll(), 2.5);
  EXPECT_DOUBLE_EQ(sum.perplexity(), std::exp(2.5));
  ASSERT_TRUE(sum.Add(answer).ok());
  EXPECT_EQ(sum.predicted(), 6);
  EXPECT_DOUBLE_EQ(sum.mean_nll(), 2.5);

  answer.add_prompt_logprobs();
  EXPECT_EQ(sum.Add(answer).code(), absl::StatusCode::kInternal);
  answer.mutable_prompt_logprobs()->RemoveLast();
  answer.mutable_completions(0)->clear_logprobs();
  EXPECT_EQ(sum.Add(answer).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(PerplexitySum().mean_nll(), 0);
}

}  // namespace
}  // namespace quire::cli
