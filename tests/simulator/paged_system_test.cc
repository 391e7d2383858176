// What paging buys, against closed forms.
#include "simulator/paged_system.h"

#include <gtest/gtest.h>

#include "tests/simulator/simulation_world.h"

namespace quire::simulator {
namespace {

// Useful share over the life of sequences of `prompt_len` + a shift and `output_len` tokens: after
// each step but the last, length over the slots of its blocks. The shifts go through one block, so
// that no alignment is lucky.
double ClosedFormShare(std::int32_t prompt_len, std::int32_t output_len, std::int32_t block_size) {
  std::int64_t useful = 0, reserved = 0;
  for (std::int32_t shift = -block_size / 2; shift < block_size / 2; ++shift) {
    for (std::int32_t t = 0; t < output_len - 1; ++t) {
      const std::int32_t length = prompt_len + shift + t;
      useful += length;
      reserved += (length + block_size - 1) / block_size * block_size;
    }
  }
  return static_cast<double>(useful) / static_cast<double>(reserved);
}

struct Geometry {
  std::int32_t prompt_len, output_len, block_size;
  double per_cent;  // mean / (mean + (block - 1) / 2) with mean = prompt + output / 2 - 1.5.
};
class GeometryTest : public ::testing::TestWithParam<Geometry> {};

TEST_P(GeometryTest, UsefulShareIsThatOfTheBlocksGeometry) {
  const Geometry geometry = GetParam();
  std::vector<Request> requests;
  for (std::int32_t shift = -geometry.block_size / 2; shift < geometry.block_size / 2; ++shift) {
    requests.push_back(MakeRequest(geometry.prompt_len + shift, geometry.output_len));
  }
  SystemOptions system = SmallSystem(SystemKind::kQuire, 1 << 20, geometry.block_size);
  system.scheduler.max_num_batched_tokens = 1 << 20;  // All prompts in the first step.
  const double share = RunSystem(system, requests).useful_share;
  EXPECT_NEAR(share, ClosedFormShare(geometry.prompt_len, geometry.output_len, geometry.block_size),
              1e-9);
  EXPECT_NEAR(100 * share, geometry.per_cent, 0.1);
}

INSTANTIATE_TEST_SUITE_P(ShareGpt, GeometryTest,
                         ::testing::Values(Geometry{161, 338, 8, 98.9},
                                           Geometry{161, 338, 16, 97.8},
                                           Geometry{161, 338, 32, 95.5},
                                           Geometry{161, 338, 64, 91.3},
                                           Geometry{161, 338, 128, 83.8}));
INSTANTIATE_TEST_SUITE_P(Alpaca, GeometryTest,
                         ::testing::Values(Geometry{19, 58, 8, 93.0}, Geometry{19, 58, 16, 86.1},
                                           Geometry{19, 58, 32, 75.0}));

TEST(PagedSystemTest, BranchesShareThePromptsBlocks) {
  Request request = MakeRequest(32, 32);
  request.num_branches = 4;
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kQuire, 1024, 16), {request});
  // After m decodes a branch has 2 blocks of the prompt and ceil(m / 16) of its own; over m = 0..30
  // the latter are 16 x 1 + 14 x 2 = 44.
  EXPECT_NEAR(result.saved_by_sharing, 1 - (31 * 2 + 4 * 44.0) / (4 * (31 * 2 + 44)), 1e-9);
  EXPECT_EQ(result.counters.prefill_tokens, 32);
  EXPECT_EQ(result.counters.decode_tokens, 4 * 31);
  EXPECT_EQ(result.counters.copies_on_write, 0);
  EXPECT_EQ(result.requests[0].output_tokens, 4 * 32);
}

TEST(PagedSystemTest, APartlyFilledBlockIsCopiedByAllBranchesButOne) {
  Request request = MakeRequest(20, 4);
  request.num_branches = 3;
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kQuire, 1024, 16), {request});
  EXPECT_EQ(result.counters.copies_on_write, 2);
  // After step 1 the branches share 2 blocks; after steps 2 and 3 each has its own second one.
  EXPECT_NEAR(result.saved_by_sharing, 1 - (2 + 4 + 4) / 18.0, 1e-9);
}

TEST(PagedSystemTest, ACachedPrefixIsNotComputedAgain) {
  std::vector<Request> requests = {MakeRequest(40, 2), MakeRequest(1, 2, 10)};
  requests[1].prompt.insert(requests[1].prompt.begin(), requests[0].prompt[0]);
  SystemOptions system = SmallSystem(SystemKind::kQuire, 1024, 16);
  const SimulationResult cached = RunSystem(system, requests);
  EXPECT_EQ(cached.requests[1].cached_tokens, 32);
  EXPECT_EQ(cached.counters.prefill_tokens, 40 + 9);
  system.enable_prefix_caching = false;
  EXPECT_EQ(RunSystem(system, requests).counters.prefill_tokens, 40 + 41);
}

// Two sequences that each want 3 of 4 blocks: one is preempted when both want their third, and its
// first block is still cached when it resumes.
TEST(PagedSystemTest, PreemptedTokensAreRecomputedExceptCachedOnes) {
  for (const SystemKind kind : {SystemKind::kQuire, SystemKind::kVllm}) {
    const SimulationResult result =
        RunSystem(SmallSystem(kind, 16), {MakeRequest(4, 8), MakeRequest(4, 8)});
    EXPECT_EQ(result.counters.preemptions, 1);
    EXPECT_EQ(result.counters.hit_tokens_after_preemption, 4);
    EXPECT_EQ(result.counters.recomputed_tokens, 4);
    EXPECT_EQ(result.num_steps, 11);
    EXPECT_EQ(absl::ToInt64Seconds(result.requests[0].last_token), 8);
    EXPECT_EQ(absl::ToInt64Seconds(result.requests[1].last_token), 11);
    EXPECT_DOUBLE_EQ(result.RecomputeTax(), 4.0 / 22);
  }
}

}  // namespace
}  // namespace quire::simulator
