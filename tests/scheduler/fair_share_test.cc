// scheduler/fair_share.h: against a plain deficit round robin, and in the waiting queue.
#include "scheduler/fair_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <random>

#include "tests/scheduler/scheduler_world.h"

namespace quire::scheduler {
namespace {

struct Item {
  int client;
  int cost;
  int number;  // In the order of arrival.
};

// The textbook's: clients in a ring, each visit adds a quantum, and serves what it pays for.
std::vector<int> RoundRobin(const std::vector<Item>& items, int quantum) {
  struct Client {
    int id;
    int deficit = 0;
    std::deque<Item> queue = {};
  };
  std::list<Client> ring;
  for (const Item& item : items) {
    auto client = std::ranges::find(ring, item.client, &Client::id);
    if (client == ring.end()) client = ring.insert(ring.end(), {item.client});
    client->queue.push_back(item);
  }
  std::vector<int> order;
  while (!ring.empty()) {
    Client client = std::move(ring.front());
    ring.pop_front();
    client.deficit += quantum;
    while (!client.queue.empty() && client.queue.front().cost <= client.deficit) {
      client.deficit -= client.queue.front().cost;
      order.push_back(client.queue.front().number);
      client.queue.pop_front();
    }
    if (!client.queue.empty()) ring.push_back(std::move(client));
  }
  return order;
}

TEST(FairShare, ServesInTheOrderOfDeficitRoundRobin) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto uniform = [&](int low, int high) {
      return std::uniform_int_distribution(low, high)(random);
    };
    const int quantum = uniform(1, 30);
    FairShare shares(quantum);
    std::vector<Item> items;
    std::vector<std::pair<Turn, int>> turns;
    for (int i = 0; i < 60; ++i) {
      items.push_back({uniform(0, 5), uniform(1, 50), i});
      turns.emplace_back(shares.Enter(0, std::to_string(items[i].client), items[i].cost, 0), i);
    }
    std::ranges::sort(turns);
    std::vector<int> order;
    for (const auto& [turn, number] : turns) order.push_back(number);
    EXPECT_EQ(order, RoundRobin(items, quantum));
  }
}

TEST(FairShare, AClientThatComesLaterStartsInTheFirstRoundItMay) {
  FairShare shares(10);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(shares.Enter(0, "a", 10, 0), (Turn{i, 0}));
  EXPECT_EQ(shares.Enter(0, "b", 10, 2), (Turn{2, 1}));
  EXPECT_EQ(shares.Enter(0, "b", 25, 2), (Turn{5, 1}));
  EXPECT_EQ(shares.Enter(0, "b", 5, 2), (Turn{5, 1}));  // What was left of that round.
}

TEST(FairShare, AClientWithoutWaitingRequestsIsForgotten) {
  FairShare shares(10);
  shares.Enter(0, "a", 95, 0);
  shares.Enter(1, "a", 1, 0);
  EXPECT_EQ(shares.num_clients(), 2u);  // One for each class.
  shares.Leave(0, "a");
  EXPECT_EQ(shares.num_clients(), 1u);
  EXPECT_EQ(shares.Enter(0, "a", 10, 0).round, 0);  // Neither debt nor savings.
}

// A sends 50 requests at once, then B sends three; one runs at a time.
TEST(FairShare, ABurstDoesNotStarveAnotherClient) {
  for (const bool share : {false, true}) {
    World world({.num_blocks = 64}, {.max_num_seqs = 1, .client_quantum = share ? 20 : 0});
    for (int i = 0; i < 50; ++i) {
      world.Add({.prompt = TokenRange(20, 1000 * i), .client_id = "burst"});
    }
    std::vector<SequenceId> others;
    for (int i = 0; i < 3; ++i) {
      others.push_back(world.Add({.prompt = TokenRange(20, 90'000 + 1000 * i), .client_id = "b"}));
    }
    std::vector<int> done;
    for (int step = 1; world.scheduler().has_work(); ++step) {
      world.Step();
      for (const SequenceId id : others) {
        if (world.Ran(id)) done.push_back(step);
      }
    }
    EXPECT_THAT(done, share ? testing::ElementsAre(3, 5, 7) : testing::ElementsAre(51, 52, 53));
  }
}

// A request that arrives behind its own client's C tokens, with K other clients, starts after at
// most K x ((C + its own) / quantum + 2) x (quantum + the largest request) tokens of others.
TEST(FairShare, TheBoundOfTheDocsHoldsUnderAStandingBurst) {
  constexpr int kQuantum = 32, kLargest = 50, kClients = 4;
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    World world({.num_blocks = 64}, {.max_num_seqs = 1, .client_quantum = kQuantum});
    TokenId content = 0;
    const auto add = [&](const std::string& client, int length) {
      content += 1000;
      return world.Add({.prompt = TokenRange(length, content), .client_id = client});
    };
    const auto add_burst = [&] {
      for (int client = 0; client < kClients; ++client) {
        add(std::to_string(client), std::uniform_int_distribution(1, kLargest)(random));
      }
    };
    for (int i = 0; i < 20; ++i) add_burst();
    world.Steps(10);
    const int before = 40, own = 30;
    add("quiet", before);
    const SequenceId late = add("quiet", own);
    std::int64_t tokens_of_others = -before;
    while (!world.Ran(late)) {
      add_burst();
      world.Step();
      tokens_of_others += world.plan().num_tokens;
    }
    EXPECT_LE(tokens_of_others - own,
              kClients * ((before + own) / kQuantum + 2) * (kQuantum + kLargest));
  }
}

// Each of eight clients sends its next request when the one before it is done, so that none of them
// has a request queued all the time.
TEST(FairShare, ClientsThatComeAndGoDoNotStarveALargeRequest) {
  constexpr int kQuantum = 16, kClients = 8, kSmall = 12, kLarge = 100;
  World world({.num_blocks = 64}, {.max_num_seqs = 1, .client_quantum = kQuantum});
  TokenId content = 0;
  std::vector<SequenceId> newest(kClients);
  const auto add = [&](int client) {
    content += 1000;
    newest[client] =
        world.Add({.prompt = TokenRange(kSmall, content), .client_id = std::to_string(client)});
  };
  for (int client = 0; client < kClients; ++client) add(client);
  world.Step();
  const SequenceId large = world.Add({.prompt = TokenRange(kLarge, 90'000), .client_id = "large"});
  std::int64_t tokens_of_others = 0;
  constexpr std::int64_t kBound = kClients * (kLarge / kQuantum + 2) * (kQuantum + kLarge);
  while (!world.Ran(large) && tokens_of_others <= kBound) {
    for (int client = 0; client < kClients; ++client) {
      if (world.Ran(newest[client])) add(client);
    }
    world.Step();
    tokens_of_others += world.plan().num_tokens;
  }
  EXPECT_TRUE(world.Ran(large)) << "after " << tokens_of_others << " tokens of others";
}

TEST(FairShare, APreemptedSequenceComesBeforeAnyTurn) {
  World world({.num_blocks = 5, .block_size = 4},
              {.max_num_seqs = 3, .watermark = 0, .client_quantum = 4});
  world.Add({.prompt = TokenRange(7), .num_outputs = 7, .client_id = "a"});
  const SequenceId victim =
      world.Add({.prompt = TokenRange(7, 100), .num_outputs = 3, .client_id = "a"});
  world.Steps(2);
  const SequenceId other = world.Add({.prompt = TokenRange(3, 200), .client_id = "b"});
  world.Step();
  ASSERT_EQ(world.preemptions(victim), 1);
  while (!world.Ran(victim)) {
    EXPECT_FALSE(world.Ran(other));
    world.Step();
  }
  world.RunToTheEnd();
}

}  // namespace
}  // namespace quire::scheduler
