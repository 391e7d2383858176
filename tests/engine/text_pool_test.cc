#include "engine/text_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace quire::engine {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kBig = TextPool::kBigJobBytes + 1;

// Occupies the pool until Open, so that a test can fill the queue.
class Gate {
 public:
  explicit Gate(TextPool& pool) {
    pool.Run(1, [this] {
      running_.Notify();
      open_.WaitForNotification();
    });
    running_.WaitForNotification();
  }
  void Open() { open_.Notify(); }

 private:
  absl::Notification running_, open_;
};

TEST(TextPool, RunsJobsInOrder) {
  TextPool pool;
  std::vector<int> order;
  absl::Notification done;
  for (int i = 0; i < 3; ++i) pool.Run(1, [&order, i] { order.push_back(i); });
  pool.Run(1, [&done] { done.Notify(); });
  done.WaitForNotification();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST(TextPool, SmallJobsPassABigOne) {
  TextPool pool;
  std::vector<char> order;
  absl::Notification done;
  Gate gate(pool);
  pool.Run(kBig, [&] {
    order.push_back('B');
    done.Notify();
  });
  for (int i = 0; i < 3; ++i) pool.Run(1, [&order] { order.push_back('s'); });
  gate.Open();
  done.WaitForNotification();
  EXPECT_THAT(order, ElementsAre('s', 's', 's', 'B'));
}

TEST(TextPool, ABigJobIsPassedABoundedNumberOfTimes) {
  TextPool pool;
  int passes = 0, at_big = -1;
  absl::Notification done;
  Gate gate(pool);
  pool.Run(kBig, [&] { at_big = passes; });
  for (int i = 0; i < 3 * TextPool::kMaxPasses; ++i) pool.Run(1, [&passes] { ++passes; });
  pool.Run(1, [&done] { done.Notify(); });
  gate.Open();
  done.WaitForNotification();
  EXPECT_EQ(at_big, TextPool::kMaxPasses);
  EXPECT_EQ(passes, 3 * TextPool::kMaxPasses);
}

TEST(TextPool, StopWaitsForTheRunningJob) {
  TextPool pool;
  bool finished = false;
  absl::Notification running, open;
  pool.Run(1, [&] {
    running.Notify();
    open.WaitForNotification();
    finished = true;
  });
  running.WaitForNotification();
  std::thread opener([&open] { open.Notify(); });
  pool.Stop();
  EXPECT_TRUE(finished);
  opener.join();
}

TEST(TextPool, AStoppedPoolRunsNothing) {
  TextPool pool;
  pool.Stop();
  bool ran = false;
  pool.Run(1, [&ran] { ran = true; });
  pool.Stop();
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace quire::engine
