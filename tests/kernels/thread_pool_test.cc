#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace quire::kernels::cpu {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolTest, RunsEveryItemOnce) {
  EXPECT_EQ(pool_.num_threads(), GetParam());
  for (const std::int64_t items : {0, 1, 2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(items));
    pool_.ParallelFor(items, [&](std::int64_t item, int worker) {
      ASSERT_GE(worker, 0);
      ASSERT_LT(worker, GetParam());
      ++runs[static_cast<std::size_t>(item)];
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1) << items;
  }
}

TEST_P(ThreadPoolTest, ResultsOfARegionAreVisibleAfterIt) {
  constexpr std::int64_t kItems = 16;
  std::vector<std::int64_t> values(kItems);  // Plain memory: a race would show under TSan.
  for (std::int64_t round = 0; round < 20'000; ++round) {
    pool_.ParallelFor(kItems, [&](std::int64_t item, int /*worker*/) {
      values[static_cast<std::size_t>(item)] += item + round;
    });
  }
  for (std::int64_t item = 0; item < kItems; ++item) {
    EXPECT_EQ(values[static_cast<std::size_t>(item)], 20'000 * item + 19'999 * 10'000);
  }
}

TEST_P(ThreadPoolTest, AWorkerRunsOneItemAtATime) {
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(GetParam()));
  std::atomic<bool> overlap = false;
  for (int round = 0; round < 500; ++round) {
    pool_.ParallelFor(32, [&](std::int64_t /*item*/, int worker) {
      std::atomic<int>& mine = inside[static_cast<std::size_t>(worker)];
      if (++mine != 1) overlap = true;
      --mine;
    });
  }
  EXPECT_FALSE(overlap);
}

TEST_P(ThreadPoolTest, ASingleItemRunsOnTheCaller) {
  for (int round = 0; round < 100; ++round) {
    std::thread::id ran_on;
    pool_.ParallelFor(1, [&](std::int64_t /*item*/, int worker) {
      EXPECT_EQ(worker, 0);
      ran_on = std::this_thread::get_id();
    });
    EXPECT_EQ(ran_on, std::this_thread::get_id());
  }
}

// A worker that is held up (here by the item itself) keeps nothing but that item.
TEST(ThreadPool, OthersTakeTheShareOfAWorkerThatIsHeldUp) {
  ThreadPool pool(2);
  constexpr std::int64_t kItems = 40;
  for (const std::int64_t held_up : {std::int64_t{0}, kItems - 1}) {
    std::atomic<std::int64_t> done = 0;
    pool.ParallelFor(kItems, [&](std::int64_t item, int /*worker*/) {
      while (item == held_up && done != kItems - 1) std::this_thread::yield();
      ++done;
    });
    EXPECT_EQ(done, kItems);
  }
}

// A worker that is not there (asleep, or without a core) is not waited for; if it were, this would
// take minutes.
TEST(ThreadPool, ManyMoreThreadsThanProcessorsCostLittle) {
  ThreadPool pool(64);
  std::atomic<std::int64_t> runs = 0;
  for (int round = 0; round < 2000; ++round) {
    pool.ParallelFor(2, [&](std::int64_t /*item*/, int /*worker*/) { ++runs; });
  }
  EXPECT_EQ(runs, 4000);
}

TEST(ThreadPool, StopsWithoutEverHavingRun) {
  for (int round = 0; round < 50; ++round) ThreadPool pool(4);
}

}  // namespace
}  // namespace quire::kernels::cpu
