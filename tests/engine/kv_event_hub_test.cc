#include "engine/kv_event_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace quire::engine {
namespace {

using block_manager::KvEvent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Events = std::vector<KvEvent>;

Events Removed(std::uint64_t hash) {
  KvEvent event;
  event.kind = KvEvent::Kind::kRemoved;
  event.block_hash = hash;
  return {event};
}

// The hashes of everything that can be read now, snapshots as 1000 + hash.
std::vector<std::uint64_t> Read(KvEventSubscription& subscription) {
  std::vector<std::uint64_t> hashes;
  while (const auto batch = subscription.Next()) {
    for (const KvEvent& event : batch->events) {
      hashes.push_back(event.block_hash + (batch->snapshot ? 1000 : 0));
    }
  }
  return hashes;
}

std::shared_ptr<KvEventSubscription> Open(KvEventHub& hub, std::uint64_t snapshot, int* wakes) {
  auto subscription = *hub.Subscribe([wakes] { ++*wakes; });
  hub.Open(*subscription, Removed(snapshot));
  return subscription;
}

TEST(KvEventHub, EachSubscriberGetsItsSnapshotAndThenAllThatFollows) {
  KvEventHub hub(1 << 20);
  int wakes = 0;
  const auto early = Open(hub, 1, &wakes);
  hub.Publish(Removed(10));
  hub.Publish(Removed(11));
  const auto late = Open(hub, 2, &wakes);
  EXPECT_THAT(Read(*early), ElementsAre(1001, 10, 11));
  hub.Publish(Removed(12));
  EXPECT_THAT(Read(*early), ElementsAre(12));
  EXPECT_THAT(Read(*late), ElementsAre(1002, 12));
  EXPECT_THAT(Read(*late), IsEmpty());
  EXPECT_TRUE(early->status().ok());
}

TEST(KvEventHub, NothingComesBeforeTheSnapshot) {
  KvEventHub hub(1 << 20);
  int wakes = 0;
  const auto subscription = *hub.Subscribe([&] { ++wakes; });
  hub.Publish(Removed(10));
  EXPECT_THAT(Read(*subscription), IsEmpty());
  EXPECT_EQ(wakes, 0);
  hub.Open(*subscription, {});
  EXPECT_EQ(wakes, 1);
  const auto batch = subscription->Next();
  ASSERT_NE(batch, nullptr);
  EXPECT_TRUE(batch->snapshot);
  EXPECT_THAT(batch->events, IsEmpty()) << "an empty cache has an empty snapshot";
  EXPECT_EQ(subscription->Next(), nullptr);
}

TEST(KvEventHub, WakesOnceForWhoeverFoundNothing) {
  KvEventHub hub(1 << 20);
  int wakes = 0;
  const auto subscription = Open(hub, 1, &wakes);
  EXPECT_EQ(wakes, 0) << "nobody has asked yet";
  Read(*subscription);
  hub.Publish(Removed(10));
  hub.Publish(Removed(11));
  EXPECT_EQ(wakes, 1);
  EXPECT_NE(subscription->Next(), nullptr);
  hub.Publish(Removed(12));
  EXPECT_EQ(wakes, 1) << "the reader is still reading";
  Read(*subscription);
  hub.Publish(Removed(13));
  EXPECT_EQ(wakes, 2);
}

TEST(KvEventHub, WhoFallsBehindIsEndedAndNobodyElse) {
  KvEventHub hub(10 * static_cast<std::int64_t>(sizeof(KvEvent)));
  int slow_wakes = 0, quick_wakes = 0;
  const auto slow = Open(hub, 1, &slow_wakes);
  const auto quick = Open(hub, 2, &quick_wakes);
  EXPECT_NE(slow->Next(), nullptr);
  EXPECT_THAT(Read(*quick), ElementsAre(1002));
  for (std::uint64_t i = 0; i < 10; ++i) {
    hub.Publish(Removed(i));
    EXPECT_THAT(Read(*quick), ElementsAre(i));
  }
  EXPECT_TRUE(slow->status().ok()) << "ten fit";
  hub.Publish(Removed(10));
  EXPECT_TRUE(absl::IsResourceExhausted(slow->status())) << slow->status();
  EXPECT_THAT(std::string(slow->status().message()), HasSubstr("too slowly"));
  EXPECT_EQ(slow_wakes, 1) << "even though it was not waiting";
  EXPECT_EQ(slow->Next(), nullptr) << "no gap is shown";
  EXPECT_TRUE(quick->status().ok());
  EXPECT_THAT(Read(*quick), ElementsAre(10));
}

TEST(KvEventHub, ABatchAboveTheBoundStillReachesThoseWhoAreUpToDate) {
  KvEventHub hub(1);
  int wakes = 0;
  const auto subscription = Open(hub, 1, &wakes);
  Read(*subscription);
  KvEvent large;
  large.block_hash = 7;
  large.tokens.resize(1000);
  hub.Publish({large});
  EXPECT_THAT(Read(*subscription), ElementsAre(7));
}

TEST(KvEventHub, TheLogIsEmptyOnceAllHaveReadIt) {
  // Room for one event: were read batches kept, the second would end the reader.
  KvEventHub hub(static_cast<std::int64_t>(sizeof(KvEvent)));
  int wakes = 0;
  const auto subscription = Open(hub, 1, &wakes);
  Read(*subscription);
  for (std::uint64_t i = 0; i < 100; ++i) {
    hub.Publish(Removed(i));
    EXPECT_THAT(Read(*subscription), ElementsAre(i));
  }
}

TEST(KvEventHub, CloseEndsAllAndRefusesOthers) {
  std::optional<KvEventHub> hub(std::in_place, 1 << 20);
  int wakes = 0;
  const auto open = Open(*hub, 1, &wakes);
  const auto unopened = *hub->Subscribe([&] { ++wakes; });
  hub->Close(absl::UnavailableError("gone"));
  EXPECT_EQ(wakes, 2);
  for (const auto& subscription : {open, unopened}) {
    EXPECT_TRUE(absl::IsUnavailable(subscription->status()));
    EXPECT_EQ(subscription->Next(), nullptr);
  }
  EXPECT_TRUE(absl::IsUnavailable(hub->Subscribe([] {}).status()));
  hub.reset();
  EXPECT_TRUE(absl::IsUnavailable(open->status())) << "a subscription outlives the hub";
}

TEST(KvEventHub, AnEndedSubscriptionMakesRoom) {
  KvEventHub hub(1 << 20);
  std::vector<std::shared_ptr<KvEventSubscription>> subscriptions;
  EXPECT_FALSE(hub.has_subscriptions());
  for (std::size_t i = 0; i < KvEventHub::kMaxSubscriptions; ++i) {
    subscriptions.push_back(*hub.Subscribe([] {}));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(hub.Subscribe([] {}).status()));
  subscriptions.pop_back();
  EXPECT_TRUE(hub.Subscribe([] {}).ok());
  subscriptions.clear();
  EXPECT_FALSE(hub.has_subscriptions());
}

TEST(KvEventHub, ACallbackMayDropItsSubscription) {
  KvEventHub hub(1 << 20);
  std::shared_ptr<KvEventSubscription> subscription;
  subscription = *hub.Subscribe([&] { subscription.reset(); });
  hub.Open(*subscription, {});
  Read(*subscription);
  hub.Publish(Removed(1));
  EXPECT_EQ(subscription, nullptr);
  EXPECT_FALSE(hub.has_subscriptions());
}

}  // namespace
}  // namespace quire::engine
