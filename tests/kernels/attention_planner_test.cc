#include "kernels/attention_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace quire::kernels {
namespace {

using testing::ElementsAre;

// The sequences of a batch: `computed` tokens stand in the cache, `new_tokens` come on top.
struct Sequence {
  int computed;
  int new_tokens;
  int first_position = 0;
};

struct Batch {
  explicit Batch(const std::vector<Sequence>& sequences) {
    for (const Sequence& s : sequences) {
      for (int i = 0; i < s.new_tokens; ++i) positions.push_back(s.computed + i);
      q_indptr.push_back(static_cast<int>(positions.size()));
      kv_lens.push_back(s.computed + s.new_tokens);
      first_position.push_back(s.first_position);
    }
    tokens.resize(positions.size());
  }
  BatchView view() const {
    BatchView batch;
    batch.token_ids = tokens;
    batch.positions = positions;
    batch.q_indptr = q_indptr;
    batch.kv_lens = kv_lens;
    batch.first_position = first_position;
    return batch;
  }
  std::vector<TokenId> tokens;
  std::vector<int> positions;
  std::vector<int> q_indptr = {0};
  std::vector<int> kv_lens;
  std::vector<int> first_position;
};

struct Keys {
  int begin;
  int end;
  bool operator==(const Keys&) const = default;
};

std::vector<Keys> KeyRanges(const AttentionPlan& plan) {
  std::vector<Keys> ranges;
  for (const AttentionTile& tile : plan.tiles) ranges.push_back({tile.kv_begin, tile.kv_end});
  return ranges;
}

AttentionPlan Plan(const Batch& batch, const AttentionPlanOptions& options) {
  AttentionPlan plan;
  PlanAttention(batch.view(), options, plan);
  return plan;
}

TEST(AttentionPlanner, CutsKeysAtAbsoluteMultiples) {
  const AttentionPlan plan = Plan(Batch({{.computed = 130, .new_tokens = 1}}), {16, 64, 0});
  EXPECT_THAT(KeyRanges(plan), ElementsAre(Keys{0, 64}, Keys{64, 128}, Keys{128, 131}));
  EXPECT_EQ(plan.max_splits, 3);
  EXPECT_EQ(plan.tiles[2].split, 2);
  EXPECT_EQ(plan.tiles[2].num_splits, 3);
}

TEST(AttentionPlanner, KeysUpToABorderMakeNoEmptyTile) {
  const AttentionPlan plan = Plan(Batch({{.computed = 63, .new_tokens = 1}}), {16, 64, 0});
  EXPECT_THAT(KeyRanges(plan), ElementsAre(Keys{0, 64}));
}

TEST(AttentionPlanner, CutsRowsOfOneSequenceOnly) {
  const AttentionPlan plan = Plan(Batch({{0, 5}, {7, 1}, {0, 4}}), {4, 64, 0});
  ASSERT_EQ(plan.tiles.size(), 4U);
  const std::vector<std::vector<int>> expected = {{0, 0, 4}, {0, 4, 5}, {1, 5, 6}, {2, 6, 10}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_THAT(
        (std::vector{plan.tiles[i].sequence, plan.tiles[i].row_begin, plan.tiles[i].row_end}),
        testing::ElementsAreArray(expected[i]));
  }
}

TEST(AttentionPlanner, StartsAtTheWindowOfTheFirstRow) {
  const AttentionPlan plan = Plan(Batch({{.computed = 200, .new_tokens = 2}}), {16, 64, 100});
  EXPECT_THAT(KeyRanges(plan), ElementsAre(Keys{101, 128}, Keys{128, 192}, Keys{192, 202}));
}

TEST(AttentionPlanner, ReusedPlanForgetsTheLastBatch) {
  AttentionPlan plan = Plan(Batch({{.computed = 500, .new_tokens = 3}}), {16, 64, 0});
  PlanAttention(Batch({{.computed = 3, .new_tokens = 1}}).view(), {16, 64, 0}, plan);
  EXPECT_THAT(KeyRanges(plan), ElementsAre(Keys{0, 4}));
  EXPECT_EQ(plan.max_splits, 1);
}

TEST(AttentionPlanner, SequencesWithoutRowsAreSkipped) {
  EXPECT_EQ(Plan(Batch({{10, 0}, {4, 1}}), {16, 64, 0}).tiles.size(), 1U);
  EXPECT_TRUE(Plan(Batch({}), {16, 64, 0}).tiles.empty());
}

RC_GTEST_PROP(AttentionPlannerProperty, CoversEveryVisibleKeyOnce, ()) {
  const int window = *rc::gen::element(0, 1, 3, 17, 100);
  const int kv_split = *rc::gen::element(4, 16, 64);
  const int max_q_rows = *rc::gen::inRange(1, 9);
  std::vector<Sequence> sequences;
  const int count = *rc::gen::inRange(1, 5);
  for (int i = 0; i < count; ++i) {
    Sequence s{.computed = *rc::gen::inRange(0, 150), .new_tokens = *rc::gen::inRange(0, 20)};
    // Blocks wholly left of the first row's window may be gone.
    if (window > 0) s.first_position = std::max(0, s.computed + 1 - window) / 4 * 4;
    sequences.push_back(s);
  }
  const Batch batch(sequences);
  const AttentionPlan plan = Plan(batch, {max_q_rows, kv_split, window});

  std::vector<std::vector<int>> seen(batch.positions.size(), std::vector<int>(200, 0));
  int max_splits = 1;
  for (std::size_t i = 0; i < plan.tiles.size(); ++i) {
    const AttentionTile& tile = plan.tiles[i];
    max_splits = std::max(max_splits, tile.num_splits);
    RC_ASSERT(tile.row_end - tile.row_begin <= max_q_rows);
    RC_ASSERT(tile.row_begin >= batch.q_indptr[tile.sequence]);
    RC_ASSERT(tile.row_end <= batch.q_indptr[tile.sequence + 1]);
    RC_ASSERT(tile.kv_begin < tile.kv_end);
    RC_ASSERT(tile.kv_begin / kv_split == (tile.kv_end - 1) / kv_split);
    RC_ASSERT(tile.kv_begin >= batch.first_position[tile.sequence]);
    if (tile.split > 0) {
      RC_ASSERT(tile.kv_begin == plan.tiles[i - 1].kv_end);
      RC_ASSERT(tile.kv_begin % kv_split == 0);
      RC_ASSERT(tile.split == plan.tiles[i - 1].split + 1);
    }
    RC_ASSERT((tile.split + 1 == tile.num_splits) ==
              (i + 1 == plan.tiles.size() || plan.tiles[i + 1].split == 0));
    for (int row = tile.row_begin; row < tile.row_end; ++row) {
      const int position = batch.positions[row];
      const int start = window > 0 ? std::max(0, position + 1 - window) : 0;
      for (int key = std::max(tile.kv_begin, start); key < std::min(tile.kv_end, position + 1);
           ++key) {
        ++seen[row][key];
      }
    }
  }
  RC_ASSERT(plan.max_splits == max_splits);
  for (std::size_t row = 0; row < seen.size(); ++row) {
    for (int key = 0; key < 200; ++key) {
      const int position = batch.positions[row];
      const bool visible = key <= position && (window == 0 || key > position - window);
      RC_ASSERT(seen[row][key] == (visible ? 1 : 0));
    }
  }
}

}  // namespace
}  // namespace quire::kernels
