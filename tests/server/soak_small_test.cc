// 200 requests with random lengths, cancels and deadlines on a small pool: each gets exactly one
// terminal status, the pool ends with no active block, and a probe still gives its recorded tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/server/harness.h"

namespace quire::server {
namespace {

using ::testing::IsEmpty;

constexpr std::uint32_t kSeed = 20251130;

struct Planned {
  std::vector<TokenId> prompt;
  std::int32_t max_tokens = 0;
  std::int32_t n = 1;
  int cancel_after_tokens = -1;  // -1: never.
  absl::Duration timeout = absl::InfiniteDuration();
};

Planned Plan(std::mt19937* random, std::uint64_t i) {
  const auto pick = [random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(*random);
  };
  Planned plan;
  // A third share a prefix, and a few are too long for the pool.
  plan.prompt = Prompt(pick(1, 200), i % 3 == 0 ? 7 : i);
  if (i % 50 == 49) plan.prompt = Prompt(600, i);
  plan.max_tokens = pick(1, 60);
  plan.n = pick(0, 9) == 0 ? 3 : 1;
  if (pick(0, 9) < 3) plan.cancel_after_tokens = pick(0, 20);
  if (pick(0, 9) < 2) plan.timeout = absl::Milliseconds(pick(1, 200));
  return plan;
}

TEST(SoakSmall, C19_C107_EveryRequestEndsOnceAndNothingIsLeft) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  HarnessOptions options;
  options.model.num_blocks = 32;  // 512 slots.
  options.engine.scheduler.max_num_seqs = 16;
  options.engine.scheduler.max_num_batched_tokens = 64;
  options.engine.scheduler.max_prefill_tokens = 32;
  Harness harness(options);
  const auto greedy = [&](const std::vector<TokenId>& prompt, std::int32_t count) {
    return fakes::FakeModelRunner::Greedy(prompt, count, options.model.vocab_size);
  };
  const std::vector<TokenId> probe = Prompt(37, 12345);
  const std::vector<TokenId> recorded = greedy(probe, 20);

  std::mt19937 random(kSeed);
  std::vector<Planned> plans;
  std::vector<std::unique_ptr<Collected>> calls;
  for (std::uint64_t i = 0; i < 200; ++i) {
    plans.push_back(Plan(&random, i));
    v1::GenerateRequest request = Request(plans.back().prompt, plans.back().max_tokens);
    if (plans.back().n > 1) {
      // Several greedy branches are refused; the best token only is the same thing.
      request.mutable_sampling()->set_n(plans.back().n);
      request.mutable_sampling()->set_temperature(1);
      request.mutable_sampling()->set_top_k(1);
    }
    CallOptions call_options;
    call_options.timeout = plans.back().timeout;
    calls.push_back(std::make_unique<Collected>(&harness.client(), request, call_options));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (plans[i].cancel_after_tokens < 0) continue;
    calls[i]->WaitForTokens(static_cast<std::size_t>(plans[i].cancel_after_tokens));
    calls[i]->Cancel();
  }

  std::map<absl::StatusCode, int> ends;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const absl::Status status = calls[i]->Wait().status;
    ++ends[status.code()];
    // Whatever was said is the truth: a prefix of the solo answer, all of it when OK.
    const auto solo = greedy(plans[i].prompt, plans[i].max_tokens);
    for (std::int32_t branch = 0; branch < plans[i].n; ++branch) {
      const auto got = calls[i]->tokens(branch);
      ASSERT_LE(got.size(), solo.size());
      EXPECT_TRUE(std::equal(got.begin(), got.end(), solo.begin())) << "request " << i;
      if (status.ok()) {
        EXPECT_EQ(got.size(), solo.size()) << "request " << i;
        EXPECT_NE(calls[i]->finished(branch), nullptr);
      }
    }
  }
  EXPECT_EQ(ends[absl::StatusCode::kOk] + ends[absl::StatusCode::kCancelled] +
                ends[absl::StatusCode::kDeadlineExceeded] +
                ends[absl::StatusCode::kInvalidArgument],
            200);
  EXPECT_EQ(ends[absl::StatusCode::kInvalidArgument], 4);
  EXPECT_GT(ends[absl::StatusCode::kOk], 50);

  const v1::Stats stats = harness.WaitUntilIdle();
  ExpectConservation(stats);
  EXPECT_EQ(stats.blocks().active(), 0);
  // A call whose deadline passes before it is sent never gets here.
  EXPECT_LE(stats.requests().received(), 200);
  EXPECT_GT(stats.requests().received(), 150);
  EXPECT_EQ(stats.requests().refused(), 4);
  EXPECT_EQ(stats.requests().failed(), 0);
  EXPECT_EQ(stats.running_sequences() + stats.waiting_sequences(), 0);
  EXPECT_THAT(harness.model().faults(), IsEmpty());

  Collected again(&harness.client(), Request(probe, 20));
  EXPECT_TRUE(again.Wait().status.ok()) << again.Wait().status;
  EXPECT_EQ(again.tokens(), recorded);
}

}  // namespace
}  // namespace quire::server
