// What a subscriber of KV events learns of the prefix cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/engine.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {
namespace {

using block_manager::KvEvent;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Ids = std::vector<TokenId>;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Keeps what is cached by the events alone, and checks that they make sense.
class Mirror {
 public:
  explicit Mirror(Harness& harness) {
    auto subscription = harness.engine->SubscribeKvEvents([this] { Wake(); });
    EXPECT_TRUE(subscription.ok()) << subscription.status();
    subscription_ = *std::move(subscription);
  }

  // Takes batches until `wanted` holds; fails the test after a minute.
  void Until(const std::function<bool()>& wanted) {
    while (!wanted()) {
      if (const auto batch = subscription_->Next()) {
        Apply(*batch);
        continue;
      }
      absl::MutexLock lock(&mutex_);
      if (!mutex_.AwaitWithTimeout(absl::Condition(&news_), absl::Minutes(1))) {
        ADD_FAILURE() << "no events come";
        return;
      }
      news_ = false;
    }
  }
  // Takes batches until these prefixes, and nothing else, are cached.
  void UntilCached(const std::set<Ids>& prefixes) {
    Until([&] { return num_batches > 0 && Prefixes() == prefixes; });
  }

  // The token sequences that can be found, from the first token on.
  std::set<Ids> Prefixes() const {
    std::set<Ids> all;
    for (const auto& [hash, prefix] : prefixes_) all.insert(prefix);
    return all;
  }
  std::set<std::uint64_t> Hashes() const {
    std::set<std::uint64_t> all;
    for (const auto& [hash, prefix] : prefixes_) all.insert(hash);
    return all;
  }
  absl::Status status() const { return subscription_->status(); }

  int num_batches = 0, num_snapshots = 0, num_cleared = 0, num_removed = 0, num_salted = 0;

 private:
  void Wake() {
    absl::MutexLock lock(&mutex_);
    news_ = true;
  }
  void Apply(const KvEventBatch& batch) {
    EXPECT_EQ(batch.snapshot, num_batches == 0) << "one snapshot, at the beginning";
    if (batch.snapshot) {
      ++num_snapshots;
    } else {
      EXPECT_FALSE(batch.events.empty()) << "only steps that changed something";
    }
    ++num_batches;
    for (const KvEvent& event : batch.events) Apply(event);
  }
  void Apply(const KvEvent& event) {
    switch (event.kind) {
      case KvEvent::Kind::kCleared:
        ++num_cleared;
        prefixes_.clear();
        return;
      case KvEvent::Kind::kRemoved:
        ++num_removed;
        EXPECT_EQ(prefixes_.erase(event.block_hash), 1u) << "removed what was not there";
        return;
      case KvEvent::Kind::kStored:
        break;
    }
    Ids prefix;
    if (event.parent_hash) {
      EXPECT_TRUE(prefixes_.contains(*event.parent_hash)) << "a child before its parent";
      prefix = prefixes_[*event.parent_hash];
    }
    EXPECT_THAT(event.tokens, SizeIs(event.salted ? 0 : 16));
    num_salted += event.salted ? 1 : 0;
    prefix.insert(prefix.end(), event.tokens.begin(), event.tokens.end());
    EXPECT_TRUE(prefixes_.emplace(event.block_hash, prefix).second) << "stored twice";
  }

  std::map<std::uint64_t, Ids> prefixes_;  // By block hash.
  absl::Mutex mutex_;
  bool news_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<KvEventSubscription> subscription_;
};

// The whole blocks of `tokens` of which all are computed.
std::set<Ids> Blocks(const Ids& tokens, std::size_t num_computed) {
  std::set<Ids> all;
  for (std::size_t end = 16; end <= num_computed; end += 16) {
    all.insert(Ids(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)));
  }
  return all;
}

Ids WholeText(Harness& harness, const Ids& prompt, std::int32_t count) {
  Ids text = prompt;
  const Ids answer = harness.Expected(prompt, count);
  text.insert(text.end(), answer.begin(), answer.end());
  return text;
}

TEST(EngineKvEvents, AnEmptyCacheHasAnEmptySnapshot) {
  Harness harness;
  Mirror mirror(harness);
  mirror.Until([&] { return mirror.num_batches > 0; });
  EXPECT_EQ(mirror.num_snapshots, 1);
  EXPECT_THAT(mirror.Prefixes(), IsEmpty());
}

TEST(EngineKvEvents, StoredBlocksCarryTokensAndParents) {
  Harness harness;
  Mirror mirror(harness);
  harness.Run(Greedy(Prompt(40), 20));
  const Ids text = WholeText(harness, Prompt(40), 20);
  mirror.UntilCached(Blocks(text, 59));
  EXPECT_THAT(mirror.Prefixes(), SizeIs(3));
}

TEST(EngineKvEvents, ABlockIsStoredWhenItIsFullNotWhenTheRequestEnds) {
  Harness harness;
  Mirror mirror(harness);
  mirror.Until([&] { return mirror.num_batches > 0; });
  StepGate gate(*harness.model);
  const auto stream = harness.Submit(Greedy(Prompt(40), 20));
  gate.Step();           // The prompt's step passes,
  gate.WaitUntilHeld();  // and the next one is held.
  mirror.UntilCached(Blocks(Prompt(40), 40));
  gate.Open();
  harness.Wait(stream);
}

TEST(EngineKvEvents, TheSnapshotIsWhatDeltasCameTo) {
  Harness harness;
  Mirror early(harness);
  for (std::uint64_t i = 0; i < 3; ++i) harness.Run(Greedy(Prompt(40, i), 20));
  Mirror late(harness);
  late.Until([&] { return late.num_batches == 1; });
  EXPECT_THAT(late.Hashes(), SizeIs(9));
  early.UntilCached(late.Prefixes());
  EXPECT_EQ(early.Hashes(), late.Hashes());
  // Both go on alike.
  harness.Run(Greedy(Prompt(40, 9), 20));
  std::set<Ids> all = late.Prefixes();
  all.merge(Blocks(WholeText(harness, Prompt(40, 9), 20), 59));
  early.UntilCached(all);
  late.UntilCached(all);
  EXPECT_EQ(early.Hashes(), late.Hashes());
}

TEST(EngineKvEvents, EvictedBlocksAreRemoved) {
  HarnessOptions options;
  options.model.num_blocks = 8;
  Harness harness(options);
  Mirror mirror(harness);
  harness.Run(Greedy(Prompt(80, 1), 10));
  harness.Run(Greedy(Prompt(80, 2), 10));
  const auto stats = harness.ExpectIdle();
  EXPECT_GT(stats->blocks.evictions, 0);
  mirror.Until([&] { return mirror.num_removed == stats->blocks.evictions; });
  EXPECT_EQ(static_cast<std::int64_t>(mirror.Hashes().size()), stats->blocks.cached);
}

TEST(EngineKvEvents, AResetOfAnIdleEngineClears) {
  Harness harness;
  Mirror mirror(harness);
  harness.Run(Greedy(Prompt(40), 20));
  mirror.UntilCached(Blocks(WholeText(harness, Prompt(40), 20), 59));
  EXPECT_EQ(*harness.engine->ResetPrefixCache(kPatience), 3);
  mirror.UntilCached({});
  EXPECT_EQ(mirror.num_cleared, 1);
  EXPECT_EQ(mirror.num_removed, 0);
}

TEST(EngineKvEvents, C18_SaltedTokensStayWithTheirTenant) {
  Harness harness;
  Mirror mirror(harness);
  GenerationRequest request = Greedy(Prompt(40), 20);
  request.cache_salt = "tenant";
  harness.Run(request);
  mirror.Until([&] { return mirror.num_salted == 3; });
  EXPECT_EQ(mirror.Prefixes(), std::set<Ids>{Ids()}) << "no tokens";
  Mirror late(harness);
  late.Until([&] { return late.num_salted == 3; });
}

TEST(EngineKvEvents, ASubscriberThatNeverReadsIsEnded) {
  HarnessOptions options;
  options.engine.max_kv_event_bytes = 200;
  Harness harness(options);
  Mirror mirror(harness);
  mirror.Until([&] { return mirror.num_batches == 1; });
  harness.Run(Greedy(Prompt(200), 200));
  EXPECT_TRUE(absl::IsResourceExhausted(mirror.status())) << mirror.status();
  Mirror again(harness);
  again.UntilCached(Blocks(WholeText(harness, Prompt(200), 200), 399));
}

TEST(EngineKvEvents, SubscriptionsEndWithTheEngine) {
  Harness harness;
  Mirror mirror(harness);
  mirror.Until([&] { return mirror.num_batches == 1; });
  harness.engine.reset();
  EXPECT_TRUE(absl::IsUnavailable(mirror.status())) << mirror.status();
}

}  // namespace
}  // namespace quire::engine
