// SubscribeKvEvents: what subscribers hear, and that nothing waits for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <thread>

#include "tests/server/harness.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

// A subscription whose batches are kept.
class Subscriber {
 public:
  explicit Subscriber(Client* client) {
    call_ = client->SubscribeKvEvents(
        [this](const v1::KvEventBatch& batch) {
          absl::MutexLock lock(&mutex_);
          batches_.push_back(batch);
        },
        [this](const CallOutcome& outcome) {
          absl::MutexLock lock(&mutex_);
          outcome_ = outcome;
        });
  }
  ~Subscriber() {
    call_->Cancel();
    EXPECT_FALSE(Wait().ok());
  }

  void Cancel() { call_->Cancel(); }
  absl::Status Wait() {
    absl::MutexLock lock(&mutex_);
    const auto over = [this]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return outcome_.has_value(); };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&over), kPatience)) << "no end came";
    return outcome_.has_value() ? outcome_->status : absl::UnknownError("no end");
  }
  // Waits until the events so far add up to `count` cached blocks.
  void WaitForBlocks(std::size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return outcome_.has_value() || (!batches_.empty() && Cached(batches_).size() == count);
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience))
        << Cached(batches_).size() << " blocks";
  }
  std::vector<v1::KvEventBatch> batches() {
    absl::MutexLock lock(&mutex_);
    return batches_;
  }

  // Hash and parent (0: none) of every block that the batches leave cached.
  static std::map<std::uint64_t, std::uint64_t> Cached(
      const std::vector<v1::KvEventBatch>& batches) {
    std::map<std::uint64_t, std::uint64_t> cached;
    for (const auto& batch : batches) {
      for (const auto& event : batch.events()) {
        if (event.has_stored()) {
          cached[event.stored().block_hash()] = event.stored().parent_block_hash();
        } else if (event.has_removed()) {
          cached.erase(event.removed().block_hash());
        } else {
          cached.clear();
        }
      }
    }
    return cached;
  }

 private:
  absl::Mutex mutex_;
  std::vector<v1::KvEventBatch> batches_ ABSL_GUARDED_BY(mutex_);
  std::optional<CallOutcome> outcome_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Call> call_;
};

void Generate(Harness& harness, std::int32_t prompt_length, std::uint64_t seed) {
  const auto answer = harness.client().GenerateUnary(Request(Prompt(prompt_length, seed), 20), {});
  EXPECT_TRUE(answer.ok()) << answer.status();
}

TEST(KvEvents, SnapshotThenDeltasNumberedWithoutAGap) {
  Harness harness;
  Generate(harness, 40, 1);
  Subscriber early(&harness.client());
  early.WaitForBlocks(3);
  Generate(harness, 40, 2);
  early.WaitForBlocks(6);
  Subscriber late(&harness.client());
  late.WaitForBlocks(6);
  Generate(harness, 80, 3);
  early.WaitForBlocks(12);
  late.WaitForBlocks(12);
  EXPECT_EQ(Subscriber::Cached(early.batches()), Subscriber::Cached(late.batches()));
  ASSERT_TRUE(harness.client().ResetPrefixCache().ok());
  early.WaitForBlocks(0);
  late.WaitForBlocks(0);
  for (Subscriber* subscriber : {&early, &late}) {
    std::uint64_t expected = 0;
    for (const auto& batch : subscriber->batches()) {
      EXPECT_EQ(batch.sequence_number(), ++expected);
      EXPECT_EQ(batch.snapshot(), expected == 1);
      EXPECT_EQ(batch.block_size(), 16);
      EXPECT_TRUE(batch.snapshot() || batch.events_size() > 0);
    }
  }
  EXPECT_TRUE(late.batches().back().events(0).has_cleared());
}

TEST(KvEvents, StoredBlocksSayWhatTheyHold) {
  Harness harness;
  Subscriber subscriber(&harness.client());
  subscriber.WaitForBlocks(0);
  Generate(harness, 40, 1);
  subscriber.WaitForBlocks(3);
  std::vector<TokenId> tokens;
  std::optional<std::uint64_t> parent;
  for (const auto& batch : subscriber.batches()) {
    for (const auto& event : batch.events()) {
      ASSERT_TRUE(event.has_stored());
      EXPECT_EQ(event.stored().has_parent_block_hash(), parent.has_value());
      EXPECT_EQ(event.stored().parent_block_hash(), parent.value_or(0));
      EXPECT_FALSE(event.stored().salted());
      parent = event.stored().block_hash();
      tokens.insert(tokens.end(), event.stored().token_ids().begin(),
                    event.stored().token_ids().end());
    }
  }
  ASSERT_EQ(tokens.size(), 48u);
  EXPECT_EQ(std::vector<TokenId>(tokens.begin(), tokens.begin() + 40), Prompt(40, 1));
}

TEST(KvEvents, C92_ALargeSnapshotComesInParts) {
  HarnessOptions options;
  options.model.num_blocks = 40'000;
  options.model.max_model_len = 65'536;
  options.engine.scheduler.max_num_batched_tokens = 65'536;
  options.engine.scheduler.max_prefill_tokens = 65'536;
  Harness harness(options);
  for (std::uint64_t i = 0; i < 9; ++i) Generate(harness, 64'000, i);
  Subscriber subscriber(&harness.client());
  subscriber.WaitForBlocks(std::size_t{9} * 4001);
  const auto batches = subscriber.batches();
  EXPECT_GE(batches.size(), 2u) << "a stored block takes about 60 bytes";
  std::uint64_t expected = 0;
  std::set<std::uint64_t> known;
  for (const auto& batch : batches) {
    EXPECT_EQ(batch.sequence_number(), ++expected);
    EXPECT_TRUE(batch.snapshot());
    EXPECT_LT(batch.ByteSizeLong(), std::size_t{2} << 20);
    for (const auto& event : batch.events()) {
      if (event.stored().has_parent_block_hash()) {
        EXPECT_TRUE(known.contains(event.stored().parent_block_hash())) << "parents come first";
      }
      known.insert(event.stored().block_hash());
    }
  }
}

TEST(KvEvents, HeadersComeBeforeTheFirstChange) {
  Harness harness;
  v1::StatsService::Stub stub(harness.Channel());
  grpc::ClientContext context;
  const auto reader = stub.SubscribeKvEvents(&context, {});
  reader->WaitForInitialMetadata();
  v1::KvEventBatch batch;
  ASSERT_TRUE(reader->Read(&batch)) << "an empty snapshot";
  EXPECT_TRUE(batch.snapshot());
  EXPECT_EQ(batch.events_size(), 0);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// A step's events alone fill it.
HarnessOptions SmallLog() {
  HarnessOptions options;
  options.engine.max_kv_event_bytes = 4096;
  options.model.num_blocks = 4096;
  options.model.max_model_len = 16'384;
  options.engine.scheduler.max_num_batched_tokens = 8192;
  options.engine.scheduler.max_prefill_tokens = 8192;
  return options;
}

// A connection that takes no more than its smallest window for a client that does not read.
std::shared_ptr<grpc::Channel> SmallWindow(const Harness& harness) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return harness.Channel(arguments);
}

TEST(KvEvents, C88_WhoDoesNotReadIsEndedWhileOthersGoOn) {
  Harness harness(SmallLog());
  v1::StatsService::Stub stub(SmallWindow(harness));
  grpc::ClientContext context;
  const auto lazy = stub.SubscribeKvEvents(&context, {});
  lazy->WaitForInitialMetadata();
  Subscriber other(&harness.client());
  other.WaitForBlocks(0);
  // Far more than the window takes.
  const std::int64_t received = harness.client().GetStats()->requests().received();
  for (std::uint64_t i = 0; i < 60; ++i) Generate(harness, 8000, i);
  EXPECT_EQ(harness.WaitUntilIdle().requests().received(), received + 60);
  v1::KvEventBatch batch;
  std::uint64_t expected = 0;
  while (lazy->Read(&batch)) EXPECT_EQ(batch.sequence_number(), ++expected);
  const grpc::Status end = lazy->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << end.error_message();
  EXPECT_THAT(end.error_message(), HasSubstr("too slowly"));
}

TEST(KvEvents, C88_WhoNeverReadsAgainIsDropped) {
  HarnessOptions options = SmallLog();
  options.server.cut_grace = absl::Milliseconds(200);
  Harness harness(options);
  v1::StatsService::Stub stub(SmallWindow(harness)), other_stub(harness.Channel());
  struct Lazy {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::KvEventBatch>> reader;
  };
  std::vector<Lazy> all(engine::KvEventHub::kMaxSubscriptions);
  for (Lazy& lazy : all) {
    lazy.reader = stub.SubscribeKvEvents(&lazy.context, {});
    lazy.reader->WaitForInitialMetadata();
  }
  const auto is_accepted = [&] {
    Lazy late;
    late.reader = other_stub.SubscribeKvEvents(&late.context, {});
    v1::KvEventBatch snapshot;
    const bool accepted = late.reader->Read(&snapshot);
    late.context.TryCancel();
    late.reader->Finish();
    return accepted;
  };
  EXPECT_FALSE(is_accepted()) << "all places are taken";
  for (std::uint64_t i = 0; i < 60; ++i) Generate(harness, 8000, i);
  // They have been told their end, which they do not read: waiting for that would keep the places.
  const absl::Time deadline = absl::Now() + kPatience;
  bool accepted = false;
  while (!accepted && absl::Now() < deadline) accepted = is_accepted();
  EXPECT_TRUE(accepted);
  for (Lazy& lazy : all) {
    lazy.context.TryCancel();
    lazy.reader->Finish();
  }
}

TEST(KvEvents, CancelledSubscribersLeaveNothingBehind) {
  Harness harness;
  for (int round = 0; round < 20; ++round) {
    Subscriber subscriber(&harness.client());
    if (round % 2 == 0) subscriber.WaitForBlocks(0);
    subscriber.Cancel();
    EXPECT_TRUE(absl::IsCancelled(subscriber.Wait()));
  }
  // Were they kept, there would be no room for so many.
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<Subscriber>> all;
    all.reserve(30);
    for (int i = 0; i < 30; ++i) all.push_back(std::make_unique<Subscriber>(&harness.client()));
    for (const auto& subscriber : all) subscriber->WaitForBlocks(0);
  }
}

TEST(KvEvents, TooManySubscribersAreRefused) {
  Harness harness;
  std::vector<std::unique_ptr<Subscriber>> all;
  for (std::size_t i = 0; i < engine::KvEventHub::kMaxSubscriptions; ++i) {
    all.push_back(std::make_unique<Subscriber>(&harness.client()));
    all.back()->WaitForBlocks(0);
  }
  Subscriber late(&harness.client());
  const absl::Status refused = late.Wait();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
}

TEST(KvEvents, C93_SubscribersDoNotHoldAShutdownUp) {
  Harness harness;
  const auto client = harness.Connect();
  Subscriber subscriber(client.get());
  subscriber.WaitForBlocks(0);
  // One that reads nothing, not even its headers.
  v1::StatsService::Stub stub(harness.Channel());
  grpc::ClientContext context;
  const auto lazy = stub.SubscribeKvEvents(&context, {});
  const absl::Time start = absl::Now();
  harness.Shutdown(absl::Seconds(30));
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  EXPECT_TRUE(absl::IsUnavailable(subscriber.Wait())) << subscriber.Wait();
}

TEST(KvEvents, NotBeforeTheModelIsLoaded) {
  HarnessOptions options;
  options.serve = false;
  Harness harness(options);
  Subscriber subscriber(&harness.client());
  EXPECT_TRUE(absl::IsUnavailable(subscriber.Wait()));
}

}  // namespace
}  // namespace quire::server
