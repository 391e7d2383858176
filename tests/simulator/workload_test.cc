#include "simulator/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/status.h"

namespace quire::simulator {
namespace {

double MeanOf(const std::vector<Request>& requests, double (*value)(const Request&)) {
  double sum = 0;
  for (const Request& request : requests) sum += value(request);
  return sum / static_cast<double>(requests.size());
}

TEST(WorkloadTest, ShapesHaveThePapersMeansAndClips) {
  struct Case {
    WorkloadOptions options;
    double input, output;
  };
  // Clipping and the limit of 2048 in all take a little off the long tails, and add a little to
  // Alpaca's short prompts.
  for (auto [options, input, output] :
       {Case{ShareGptShape(), 161, 338}, Case{AlpacaShape(), 19, 58}}) {
    options.num_requests = 50'000;
    const std::vector<Request> requests = MakeWorkload(options);
    EXPECT_NEAR(MeanOf(requests, [](const Request& r) { return double(r.prompt_len()); }), input,
                0.04 * input);
    EXPECT_NEAR(MeanOf(requests, [](const Request& r) { return double(r.output_len); }), output,
                0.04 * output);
    for (const Request& request : requests) {
      ASSERT_GE(request.prompt_len(), 4);
      ASSERT_GE(request.output_len, 4);
      ASSERT_LE(request.total_len(), 2048);
    }
  }
}

TEST(WorkloadTest, LognormalLengthsHaveTheirSigma) {
  WorkloadOptions options{.num_requests = 20'000, .input = {.mean = 5000, .sigma = 0.8}};
  double sum = 0, squares = 0;
  for (const Request& request : MakeWorkload(options)) {
    const double log = std::log(request.prompt_len());
    sum += log;
    squares += log * log;
  }
  const double mean = sum / 20'000;
  EXPECT_NEAR(mean, std::log(5000) - 0.32, 0.02);
  EXPECT_NEAR(std::sqrt(squares / 20'000 - mean * mean), 0.8, 0.02);
}

TEST(WorkloadTest, SigmaZeroIsFixed) {
  for (const Request& request :
       MakeWorkload({.num_requests = 10, .input = {.mean = 7}, .output = {.mean = 3}})) {
    EXPECT_EQ(request.prompt_len(), 7);
    EXPECT_EQ(request.output_len, 3);
    EXPECT_EQ(request.arrival, absl::ZeroDuration());
  }
}

TEST(WorkloadTest, ArrivalsAreAPoissonProcess) {
  const std::vector<Request> requests = MakeWorkload({.num_requests = 20'000, .request_rate = 50});
  EXPECT_NEAR(absl::ToDoubleSeconds(requests.back().arrival), 400, 10);
  EXPECT_TRUE(std::ranges::is_sorted(requests, {}, &Request::arrival));
  std::int64_t long_gaps = 0;  // Longer than the mean: e^-1 of them.
  for (std::size_t i = 1; i < requests.size(); ++i) {
    if (requests[i].arrival - requests[i - 1].arrival > absl::Milliseconds(20)) ++long_gaps;
  }
  EXPECT_NEAR(static_cast<double>(long_gaps) / 20'000, std::exp(-1), 0.01);
}

TEST(WorkloadTest, AHigherRateBringsTheSameRequestsFaster) {
  const std::vector<Request> slow = MakeWorkload({.num_requests = 50, .request_rate = 1});
  const std::vector<Request> fast = MakeWorkload({.num_requests = 50, .request_rate = 4});
  for (std::size_t i = 0; i < slow.size(); ++i) {
    EXPECT_EQ(slow[i].PromptTokens(), fast[i].PromptTokens());
    EXPECT_NEAR(absl::FDivDuration(slow[i].arrival, fast[i].arrival), 4, 1e-6);
  }
}

TEST(WorkloadTest, SeedsDecideEverything) {
  WorkloadOptions options = ShareGptShape();
  options.num_requests = 20;
  const auto a = MakeWorkload(options), b = MakeWorkload(options);
  options.seed = 1;
  const auto c = MakeWorkload(options);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].PromptTokens(), b[i].PromptTokens());
    EXPECT_EQ(a[i].OutputToken(0, 3), b[i].OutputToken(0, 3));
    EXPECT_NE(a[i].PromptTokens(), c[i].PromptTokens());
  }
}

TEST(WorkloadTest, BranchesAnswerDifferently) {
  const Request request = MakeWorkload({.num_requests = 1, .num_branches = 2}).front();
  EXPECT_NE(request.OutputToken(0, 0), request.OutputToken(1, 0));
}

TEST(WorkloadTest, PrefixesAreSharedAndNothingElse) {
  const std::vector<Request> requests = MakeWorkload(
      {.num_requests = 100, .input = {.mean = 10}, .num_prefixes = 3, .prefix_len = 32});
  std::set<std::vector<TokenId>> prefixes, rests;
  for (const Request& request : requests) {
    const std::vector<TokenId> prompt = request.PromptTokens();
    ASSERT_EQ(prompt.size(), 42U);
    prefixes.insert({prompt.begin(), prompt.begin() + 32});
    rests.insert({prompt.begin() + 32, prompt.end()});
  }
  EXPECT_EQ(prefixes.size(), 3U);
  EXPECT_EQ(rests.size(), 100U);
}

TEST(WorkloadTest, ATurnsPromptIsTheTextSoFarAndANewInput) {
  const std::vector<Request> requests = MakeWorkload({.num_requests = 2,
                                                      .input = {.mean = 10},
                                                      .output = {.mean = 5},
                                                      .num_turns = 3,
                                                      .mean_think_time = absl::Seconds(2)});
  ASSERT_EQ(requests.size(), 6U);
  EXPECT_EQ(requests[0].after, kNoRequest);
  EXPECT_EQ(requests[1].after, 0);
  EXPECT_EQ(requests[2].after, 1);
  EXPECT_EQ(requests[3].after, kNoRequest);
  EXPECT_GT(requests[1].arrival, absl::ZeroDuration());
  std::vector<TokenId> text = requests[0].PromptTokens();
  for (int i = 0; i < 5; ++i) text.push_back(requests[0].OutputToken(0, i));
  std::vector<TokenId> second = requests[1].PromptTokens();
  ASSERT_EQ(second.size(), 25U);
  second.resize(15);
  EXPECT_EQ(second, text);
  EXPECT_EQ(requests[2].prompt_len(), 40);
}

TEST(WorkloadTest, AConversationEndsBeforeItOutgrowsTheContext) {
  const std::vector<Request> requests = MakeWorkload({.num_requests = 1,
                                                      .input = {.mean = 10},
                                                      .output = {.mean = 5},
                                                      .max_total_len = 41,
                                                      .num_turns = 9});
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[2].prompt_len(), 40);
  EXPECT_EQ(requests[2].total_len(), 41);
}

TEST(WorkloadTest, ValidateNamesWhatIsWrong) {
  EXPECT_EQ(ShareGptShape().Validate(), absl::OkStatus());
  const auto message = [](const WorkloadOptions& options) {
    return std::string(AsStd(options.Validate().message()));
  };
  EXPECT_THAT(message({.num_requests = 0}), ::testing::HasSubstr("requests"));
  EXPECT_THAT(message({.input = {.mean = 0}}), ::testing::HasSubstr("input"));
  EXPECT_THAT(message({.output = {.mean = 5, .sigma = -1}}), ::testing::HasSubstr("sigma"));
  EXPECT_THAT(message({.max_total_len = 20, .num_prefixes = 1, .prefix_len = 20}),
              ::testing::HasSubstr("no room for a prefix of 20"));
  EXPECT_THAT(message({.num_requests = 10'000'000, .num_turns = 2}),
              ::testing::HasSubstr("conversations"));
  EXPECT_THAT(message({.request_rate = 1e-300}),
              ::testing::HasSubstr("request rate must be 0 or in [1e-09, 1000000000]"));
  EXPECT_THAT(message({.mean_think_time = absl::Seconds(1e300)}),
              ::testing::HasSubstr("think time must be in [0, 1000000000] seconds, got inf"));
  const WorkloadOptions slowest{.request_rate = WorkloadOptions::kMinRequestRate,
                                .mean_think_time = WorkloadOptions::kMaxThinkTime};
  EXPECT_EQ(slowest.Validate(), absl::OkStatus());
}

}  // namespace
}  // namespace quire::simulator
