#include "kernels/cpu/attention_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace quire::kernels::cpu {
namespace {

// A plan of row ranges, each given by its rows and its keys, cut at multiples of 100.
AttentionPlan PlanOf(const std::vector<std::pair<int, int>>& ranges) {
  AttentionPlan plan;
  int row = 0;
  for (const auto& [rows, keys] : ranges) {
    const int splits = (keys + 99) / 100;
    for (int split = 0; split < splits; ++split) {
      plan.tiles.push_back({.sequence = 0,
                            .row_begin = row,
                            .row_end = row + rows,
                            .kv_begin = split * 100,
                            .kv_end = std::min(keys, split * 100 + 100),
                            .split = split,
                            .num_splits = splits});
    }
    row += rows;
  }
  return plan;
}

AttentionWork Divide(const AttentionPlan& plan, int workers) {
  AttentionWork work;
  DivideAttention(plan, workers, work);
  return work;
}

// Every tile of the plan exactly once, and states that do not overlap.
void ExpectComplete(const AttentionPlan& plan, const AttentionWork& work) {
  std::vector<int> seen(plan.tiles.size(), 0);
  std::set<int> states;
  for (const AttentionWorkItem& item : work.items) {
    const RowRange& range = work.ranges[item.range];
    EXPECT_EQ(item.split >= 0, range.first_state >= 0);
    if (item.split >= 0) {
      ++seen[range.first_tile + item.split];
      EXPECT_TRUE(states.insert(range.first_state + item.split).second);
      EXPECT_LT(range.first_state + item.split, work.num_states);
      continue;
    }
    for (int split = 0; split < range.num_splits; ++split) ++seen[range.first_tile + split];
  }
  EXPECT_THAT(seen, testing::Each(1));
  EXPECT_EQ(static_cast<int>(states.size()), work.num_states);
}

TEST(AttentionWork, ManyEqualRangesStayWhole) {
  const AttentionPlan plan = PlanOf(std::vector<std::pair<int, int>>(20, {4, 350}));
  const AttentionWork work = Divide(plan, 2);
  ExpectComplete(plan, work);
  EXPECT_EQ(work.items.size(), 20U);
  EXPECT_EQ(work.num_states, 0);
  EXPECT_EQ(work.max_rows, 4);
}

TEST(AttentionWork, ALongRangeAmongShortOnesIsDividedAndGoesFirst) {
  const AttentionPlan plan = PlanOf({{1, 90}, {1, 1'000}, {1, 90}, {2, 40}});
  const AttentionWork work = Divide(plan, 2);
  ExpectComplete(plan, work);
  ASSERT_EQ(work.items.size(), 13U);
  EXPECT_EQ(work.num_states, 10);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(work.items[i].range, 1);
    EXPECT_EQ(work.items[i].split, i);
  }
}

TEST(AttentionWork, OneWorkerNeedsNoDivision) {
  const AttentionPlan plan = PlanOf({{1, 1'000}});
  const AttentionWork work = Divide(plan, 1);
  ExpectComplete(plan, work);
  EXPECT_EQ(work.items.size(), 1U);
}

TEST(AttentionWork, KeptStatesAreFew) {
  for (int workers = 2; workers <= 8; ++workers) {
    const AttentionPlan plan = PlanOf(std::vector<std::pair<int, int>>(64, {1, 200}));
    const AttentionWork work = Divide(plan, workers);
    ExpectComplete(plan, work);
    EXPECT_LT(work.num_states, 4 * workers * 2);
  }
}

TEST(AttentionWork, ReusedWorkForgetsTheLastPlan) {
  AttentionWork work = Divide(PlanOf({{8, 1'000}}), 2);
  const AttentionPlan plan = PlanOf({{1, 50}});
  DivideAttention(plan, 2, work);
  ExpectComplete(plan, work);
  EXPECT_EQ(work.max_rows, 1);
  EXPECT_EQ(work.num_states, 0);
}

}  // namespace
}  // namespace quire::kernels::cpu
