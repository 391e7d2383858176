#include "simulator/router.h"

#include <gtest/gtest.h>

#include <numeric>

#include "simulator/workload.h"
#include "tests/simulator/simulation_world.h"

namespace quire::simulator {
namespace {

std::vector<TokenId> Tokens(int count, TokenId first) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(RouterTest, RoundRobinTakesTurns) {
  Router router(Routing::kRoundRobin, 3);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(router.Route({}), i % 3);
}

TEST(RouterTest, LeastLoadCountsWhatHasNotEnded) {
  Router router(Routing::kLeastLoad, 3);
  EXPECT_EQ(router.Route({}), 0);
  EXPECT_EQ(router.Route({}), 1);
  EXPECT_EQ(router.Route({}), 2);
  router.Ended(1);
  EXPECT_EQ(router.Route({}), 1);
  EXPECT_EQ(router.Route({}), 0);
}

TEST(RouterTest, CacheAwareFollowsTheLongestPrefixUntilItsReplicaIsOverloaded) {
  Router router(Routing::kCacheAware, 4);
  const std::vector<TokenId> prompt = Tokens(200, 1);
  EXPECT_EQ(router.Route(prompt), 0);
  EXPECT_EQ(router.Route(Tokens(200, 1000)), 1);
  // The same first pieces, another tail.
  std::vector<TokenId> other = prompt;
  other.back() = 7;
  EXPECT_EQ(router.Route(other), 0);
  // Too short to have a piece: the least loaded.
  EXPECT_EQ(router.Route(Tokens(63, 1)), 2);
  // Replicas 2 and 3 have at most one request: 0 may have eight more.
  int sent_to_0 = 2;
  while (router.Route(prompt) == 0) ++sent_to_0;
  EXPECT_EQ(sent_to_0, Router::kMaxLoadGap + 1);
}

TEST(RouterTest, CacheAwareRoutingHitsMoreThanRoundRobin) {
  WorkloadOptions workload{.num_requests = 800,
                           .input = {.mean = 60},
                           .output = {.mean = 20},
                           .request_rate = 60,
                           .num_prefixes = 40,
                           .prefix_len = 256};
  const std::vector<Request> requests = MakeWorkload(workload);
  const auto hits = [&](Routing routing) {
    SimulationOptions options{.num_replicas = 8, .routing = routing};
    const SimulationResult result =
        RunSystem(SmallSystem(SystemKind::kQuire, 15'700, 16), requests, options);
    return static_cast<double>(result.counters.prefix_hit_tokens) /
           static_cast<double>(result.counters.prefix_query_tokens);
  };
  const double round_robin = hits(Routing::kRoundRobin), cache_aware = hits(Routing::kCacheAware);
  // Every replica computes each prefix once against one replica in all: of 800 prompts 320 and 40
  // miss theirs, 256 of 316 tokens each, but for what arrives while a prefix is being computed.
  EXPECT_NEAR(round_robin, 256.0 / 316 * (800 - 320) / 800, 0.05);
  EXPECT_NEAR(cache_aware, 256.0 / 316 * (800 - 40) / 800, 0.05);
}

}  // namespace
}  // namespace quire::simulator
