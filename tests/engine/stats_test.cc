#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/stats_board.h"
#include "engine/stats_recorder.h"

namespace quire::engine {
namespace {

using ::testing::ElementsAre;

TEST(Histogram, CountsEachValueInItsBucket) {
  Histogram histogram = MakeHistogram({1, 2, 5});
  for (const double value : {0.5, 1.0, 1.5, 5.0, 5.5, 100.0}) histogram.Observe(value);
  EXPECT_THAT(histogram.counts, ElementsAre(2, 1, 1, 2));
  EXPECT_EQ(histogram.count, 6);
  EXPECT_DOUBLE_EQ(histogram.sum, 113.5);
}

TEST(StatsRecorder, LengthBucketsEndAtTheContext) {
  const StatsRecorder recorder(2000, absl::UnixEpoch());
  const EngineStats stats = recorder.Snapshot(absl::UnixEpoch(), {}, {}, {}, true, false);
  EXPECT_THAT(stats.request_prompt_tokens.bounds,
              ElementsAre(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000));
}

TEST(StatsRecorder, BucketEdgesAscendAndReachBelowAMillisecond) {
  const StatsRecorder recorder(8192, absl::UnixEpoch());
  const EngineStats s = recorder.Snapshot(absl::UnixEpoch(), {}, {}, {}, true, false);
  for (const Histogram* h : {&s.time_to_first_token, &s.inter_token_latency, &s.e2e_latency,
                             &s.queue_time, &s.prefill_time, &s.decode_time, &s.step_time}) {
    EXPECT_TRUE(std::is_sorted(h->bounds.begin(), h->bounds.end()));
    EXPECT_LT(h->bounds.front(), 0.001);
    EXPECT_EQ(h->counts.size(), h->bounds.size() + 1);
  }
}

TEST(StatsRecorder, ASnapshotHoldsAllThatWasRecorded) {
  StatsRecorder recorder(100, absl::UnixEpoch());
  recorder.RequestStarted(absl::Seconds(2), 30, 16);
  recorder.FirstToken(absl::Seconds(5), absl::Seconds(3));
  recorder.TokenGenerated();
  recorder.TokenGap(absl::Milliseconds(4));
  recorder.TokenGenerated();
  recorder.StepFinished(
      absl::Milliseconds(7),
      {.num_tokens = 12,
       .num_sequences = 3,
       .blocks = {.block_size = 16, .active = 5, .leased = 2, .useful_slots = 40}});
  recorder.RequestFinished(absl::Seconds(9), absl::Seconds(4), 30, 2);

  const absl::Time now = absl::UnixEpoch() + absl::Seconds(50);
  const EngineStats s =
      recorder.Snapshot(now, {.received = 3, .queued = 1, .finished_stop = 1, .failed = 1},
                        {.capacity = 9, .free = 9}, {.num_preemptions = 4}, false, true);
  EXPECT_EQ(s.time, now);
  EXPECT_EQ(s.last_step_finished, now);
  EXPECT_EQ(s.requests_received, 3);
  EXPECT_EQ(s.requests_queued, 1);
  EXPECT_EQ(s.finished_stop, 1);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.blocks.capacity, 9);
  EXPECT_EQ(s.scheduler.num_preemptions, 4);
  EXPECT_EQ(s.prompt_tokens, 30);
  EXPECT_EQ(s.cached_prompt_tokens, 16);
  EXPECT_EQ(s.generation_tokens, 2);
  EXPECT_DOUBLE_EQ(s.queue_time.sum, 2);
  EXPECT_DOUBLE_EQ(s.time_to_first_token.sum, 5);
  EXPECT_DOUBLE_EQ(s.prefill_time.sum, 3);
  EXPECT_DOUBLE_EQ(s.inter_token_latency.sum, 0.004);
  EXPECT_DOUBLE_EQ(s.e2e_latency.sum, 9);
  EXPECT_DOUBLE_EQ(s.decode_time.sum, 4);
  EXPECT_DOUBLE_EQ(s.step_time.sum, 0.007);
  EXPECT_DOUBLE_EQ(s.iteration_tokens.sum, 12);
  EXPECT_DOUBLE_EQ(s.reserved_block_seconds, 0.007 * 7);
  EXPECT_DOUBLE_EQ(s.useful_slot_seconds, 0.007 * (40 + 12 + 2 * 16));
  EXPECT_DOUBLE_EQ(s.batch_seconds, 0.007 * 3);
  EXPECT_DOUBLE_EQ(s.request_prompt_tokens.sum, 30);
  EXPECT_DOUBLE_EQ(s.request_generation_tokens.sum, 2);
  EXPECT_FALSE(s.healthy);
  EXPECT_TRUE(s.draining);
}

TEST(StatsBoard, NumbersSnapshotsAndKeepsTheNewest) {
  StatsBoard board(EngineStats{});
  EXPECT_EQ(board.Read()->sequence_number, 0U);
  const std::shared_ptr<const EngineStats> first = board.Read();
  board.Publish({.requests_received = 7});
  EXPECT_EQ(board.Read()->sequence_number, 1U);
  EXPECT_EQ(board.Read()->requests_received, 7);
  EXPECT_EQ(first->requests_received, 0) << "a published snapshot never changes";
}

TEST(StatsBoard, WaitsForANewerSnapshot) {
  StatsBoard board(EngineStats{});
  EXPECT_EQ(board.WaitNewer(0, absl::ZeroDuration())->sequence_number, 0U) << "timed out";
  std::thread publisher([&board] { board.Publish({.generation_tokens = 5}); });
  const std::shared_ptr<const EngineStats> stats = board.WaitNewer(0, absl::Seconds(60));
  EXPECT_EQ(stats->sequence_number, 1U);
  EXPECT_EQ(stats->generation_tokens, 5);
  publisher.join();
}

}  // namespace
}  // namespace quire::engine
