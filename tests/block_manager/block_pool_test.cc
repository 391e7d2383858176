#include "block_manager/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "base/status.h"

namespace quire::block_manager {
namespace {

using testing::ElementsAre;

class Evictions final : public BlockPool::EvictionObserver {
 public:
  void OnEvict(BlockId id) override { ids.push_back(id.value()); }
  void OnOnlyLeasedLeft() override {
    ++times_only_leased_left;
    for (const BlockId id : to_give_up) pool->DropLease(id, LeaseEnd::kForRoom);
    to_give_up.clear();
  }
  std::vector<int> ids;
  int times_only_leased_left = 0;
  BlockPool* pool = nullptr;
  std::vector<BlockId> to_give_up;
};

class BlockPoolTest : public testing::Test {
 protected:
  ~BlockPoolTest() override { ExpectSound(); }

  BlockRef AllocateOne() {
    BlockRef block;
    EXPECT_TRUE(pool_.Allocate({&block, 1}));
    return block;
  }
  // A block that is Cached when its reference goes.
  BlockRef AllocateReusable() {
    BlockRef block = AllocateOne();
    pool_.MarkReusable(block.id());
    return block;
  }
  void ExpectCounts(int active, int cached, int free) {
    EXPECT_EQ(pool_.num_active(), active);
    EXPECT_EQ(pool_.num_cached(), cached);
    EXPECT_EQ(pool_.num_free(), free);
    ExpectSound();
  }
  void ExpectSound() {
    EXPECT_EQ(pool_.Audit(), absl::OkStatus());
    EXPECT_EQ(pool_.num_active() + pool_.num_cached() + pool_.num_free(), pool_.capacity());
  }

  Evictions evictions_;
  BlockPool pool_{4, &evictions_};
};

TEST_F(BlockPoolTest, StartsFreeAndHandsOutEachBlockOnce) {
  ExpectCounts(0, 0, 4);
  std::array<BlockRef, 4> blocks;
  ASSERT_TRUE(pool_.Allocate(blocks));
  std::set<int> ids;
  for (const BlockRef& block : blocks) ids.insert(block.id().value());
  EXPECT_THAT(ids, ElementsAre(0, 1, 2, 3));
  ExpectCounts(4, 0, 0);
}

TEST_F(BlockPoolTest, AllocatesAllOrNothing) {
  const BlockRef kept = AllocateOne();
  std::array<BlockRef, 4> four;
  EXPECT_FALSE(pool_.Allocate(four));
  for (const BlockRef& block : four) EXPECT_FALSE(static_cast<bool>(block));
  ExpectCounts(1, 0, 3);
  EXPECT_EQ(pool_.allocations(), 1);
  EXPECT_TRUE(pool_.Allocate(std::span(four).first(3)));
  ExpectCounts(4, 0, 0);
}

TEST_F(BlockPoolTest, BlockWithoutReusableContentBecomesFree) {
  AllocateOne();
  ExpectCounts(0, 0, 4);
}

TEST_F(BlockPoolTest, ReusableBlockBecomesCachedAndCanBeRevived) {
  const BlockId id = AllocateReusable().id();
  ExpectCounts(0, 1, 3);
  EXPECT_EQ(pool_.state(id), BlockState::kCached);
  const BlockRef again = pool_.Acquire(id);
  EXPECT_EQ(pool_.state(id), BlockState::kActive);
  EXPECT_EQ(pool_.owners(id), 1);
  EXPECT_TRUE(pool_.reusable(id));
  ExpectCounts(1, 0, 3);
}

TEST_F(BlockPoolTest, FreeBlocksGoFirstTheOneFreedLastFirst) {
  BlockRef a = AllocateReusable(), b = AllocateOne(), c = AllocateOne();
  const BlockId b_id = b.id(), c_id = c.id();
  a = BlockRef();
  c = BlockRef();
  b = BlockRef();
  const BlockRef first = AllocateOne(), second = AllocateOne(), third = AllocateOne();
  EXPECT_EQ(first.id(), b_id);
  EXPECT_EQ(second.id(), c_id);
  ExpectCounts(3, 1, 0);  // The cached block was spared while there were free ones.
  EXPECT_EQ(pool_.evictions(), 0);
}

TEST_F(BlockPoolTest, EvictsTheLeastRecentlyUsedFirst) {
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(AllocateReusable());
  for (const int i : {2, 0, 3, 1}) blocks[static_cast<std::size_t>(i)] = BlockRef();
  { const BlockRef used = pool_.Acquire(BlockId{0}); }  // Used again, so it goes last.
  ExpectCounts(0, 4, 0);
  std::array<BlockRef, 3> out;
  ASSERT_TRUE(pool_.Allocate(out));
  EXPECT_THAT(evictions_.ids, ElementsAre(2, 3, 1));
  EXPECT_EQ(pool_.evictions(), 3);
  EXPECT_FALSE(pool_.reusable(out[0].id()));
  ExpectCounts(3, 1, 0);
}

TEST_F(BlockPoolTest, RevivesFromTheMiddleOfTheLruList) {
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(AllocateReusable());
  blocks.clear();
  const BlockRef middle = pool_.Acquire(BlockId{1});
  ExpectCounts(1, 3, 0);
  std::array<BlockRef, 3> out;
  ASSERT_TRUE(pool_.Allocate(out));
  EXPECT_THAT(evictions_.ids, ElementsAre(0, 2, 3));
}

TEST_F(BlockPoolTest, SharesAreCountedAndTheLastOneFrees) {
  BlockRef a = AllocateOne();
  BlockRef b = a.Share();
  EXPECT_EQ(b.id(), a.id());
  EXPECT_EQ(pool_.owners(a.id()), 2);
  EXPECT_EQ(pool_.num_shares(), 2);
  a = BlockRef();
  ExpectCounts(1, 0, 3);
  b = BlockRef();
  ExpectCounts(0, 0, 4);
  EXPECT_EQ(pool_.num_shares(), 0);
}

TEST_F(BlockPoolTest, MovingAReferenceMovesItsShare) {
  BlockRef a = AllocateOne();
  const BlockId id = a.id();
  BlockRef b = std::move(a);
  EXPECT_FALSE(static_cast<bool>(a));  // NOLINT(bugprone-use-after-move): that is the point.
  EXPECT_EQ(b.id(), id);
  EXPECT_EQ(pool_.owners(id), 1);
  BlockRef c = AllocateOne();
  c = std::move(b);  // Gives back what it held.
  ExpectCounts(1, 0, 3);
  BlockRef& same = c;
  c = std::move(same);
  EXPECT_EQ(pool_.owners(id), 1);
  static_assert(!std::is_copy_constructible_v<BlockRef>);
  static_assert(!std::is_copy_assignable_v<BlockRef>);
}

TEST_F(BlockPoolTest, HoldKeepsABlockWithoutOwningIt) {
  BlockRef block = AllocateOne();
  const BlockId id = block.id();
  pool_.Hold(id);
  pool_.Hold(id);
  EXPECT_EQ(pool_.owners(id), 1);
  EXPECT_EQ(pool_.num_shares(), 1);
  block = BlockRef();
  EXPECT_EQ(pool_.owners(id), 0);
  ExpectCounts(1, 0, 3);
  pool_.ReleaseHolds();
  ExpectCounts(0, 0, 4);
}

TEST_F(BlockPoolTest, FilledSlotsCountActiveBlocksOnce) {
  BlockRef a = AllocateReusable(), b = AllocateOne();
  pool_.SetFilled(a.id(), 16);
  pool_.SetFilled(b.id(), 3);
  pool_.SetFilled(b.id(), 5);
  const BlockRef shared = b.Share();
  EXPECT_EQ(pool_.filled_slots(), 21);
  const BlockId a_id = a.id();
  a = BlockRef();
  EXPECT_EQ(pool_.filled_slots(), 5);
  a = pool_.Acquire(a_id);
  EXPECT_EQ(pool_.filled_slots(), 21);
  ExpectSound();
}

TEST_F(BlockPoolTest, RecycledBlocksStartEmpty) {
  BlockRef block = AllocateReusable();
  pool_.SetFilled(block.id(), 16);
  block = BlockRef();
  std::array<BlockRef, 4> all;
  ASSERT_TRUE(pool_.Allocate(all));
  for (const BlockRef& ref : all) EXPECT_EQ(pool_.filled(ref.id()), 0);
  EXPECT_EQ(pool_.filled_slots(), 0);
}

TEST_F(BlockPoolTest, DropAllCachedSparesActiveBlocks) {
  BlockRef a = AllocateReusable(), b = AllocateReusable();
  const BlockRef active = AllocateReusable();
  const int a_id = a.id().value(), b_id = b.id().value();
  b = BlockRef();
  a = BlockRef();
  EXPECT_EQ(pool_.DropAllCached(), 2);
  EXPECT_THAT(evictions_.ids, ElementsAre(b_id, a_id));
  EXPECT_EQ(pool_.evictions(), 0);  // Nothing was dropped to make room.
  EXPECT_TRUE(pool_.reusable(active.id()));
  ExpectCounts(1, 0, 3);
}

TEST_F(BlockPoolTest, LeasedBlocksAreCachedButNotEvictedWhileOthersAre) {
  BlockRef a = AllocateReusable(), b = AllocateReusable(), c = AllocateReusable();
  const BlockId leased = a.id();
  pool_.AddLease(leased);
  EXPECT_EQ(pool_.num_leased(), 0);  // Active, so nobody can evict it.
  a = BlockRef();
  b = BlockRef();
  c = BlockRef();
  EXPECT_EQ(pool_.num_leased(), 1);
  ExpectCounts(0, 3, 1);
  std::array<BlockRef, 3> out;
  ASSERT_TRUE(pool_.Allocate(out));
  EXPECT_THAT(evictions_.ids, testing::UnorderedElementsAre(1, 2));
  EXPECT_EQ(evictions_.times_only_leased_left, 0);
  EXPECT_EQ(pool_.evictions_leased(), 0);
  EXPECT_EQ(pool_.num_available(), 1);

  evictions_.pool = &pool_;
  evictions_.to_give_up = {leased};
  const BlockRef last = AllocateOne();
  EXPECT_EQ(last.id(), leased);
  EXPECT_EQ(evictions_.times_only_leased_left, 1);
  EXPECT_EQ(pool_.evictions(), 3);
  EXPECT_EQ(pool_.evictions_leased(), 1);
  ExpectCounts(4, 0, 0);
}

TEST_F(BlockPoolTest, ALeasedBlockCanBeRevivedAndIsLeasedAfterwards) {
  const BlockId id = AllocateReusable().id();
  pool_.AddLease(id);
  EXPECT_EQ(pool_.num_leased(), 1);
  {
    const BlockRef used = pool_.Acquire(id);
    ExpectCounts(1, 0, 3);
    EXPECT_EQ(pool_.num_leased(), 0);
    EXPECT_EQ(pool_.leases(id), 1);
  }
  EXPECT_EQ(pool_.num_leased(), 1);
  ExpectCounts(0, 1, 3);
}

TEST_F(BlockPoolTest, WithItsLastLeaseABlockIsTheMostRecentlyUsed) {
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(AllocateReusable());
  pool_.AddLease(BlockId{0});
  pool_.AddLease(BlockId{0});
  for (BlockRef& block : blocks) block = BlockRef();
  pool_.DropLease(BlockId{0}, LeaseEnd::kGivenBack);
  EXPECT_EQ(pool_.num_leased(), 1);
  EXPECT_EQ(pool_.DropAllCached(), 3);
  EXPECT_THAT(evictions_.ids, ElementsAre(1, 2, 3));
  pool_.DropLease(BlockId{0}, LeaseEnd::kGivenBack);
  EXPECT_EQ(pool_.num_leased(), 0);
  std::array<BlockRef, 4> out;
  ASSERT_TRUE(pool_.Allocate(out));
  EXPECT_THAT(evictions_.ids, ElementsAre(1, 2, 3, 0));
  EXPECT_EQ(pool_.evictions_leased(), 0);
}

TEST_F(BlockPoolTest, PeakActiveIsAHighWaterMark) {
  {
    std::array<BlockRef, 2> two;
    ASSERT_TRUE(pool_.Allocate(two));
    pool_.MarkReusable(two[0].id());
    pool_.MarkReusable(two[1].id());
  }
  EXPECT_EQ(pool_.peak_active(), 2);
  {
    std::array<BlockRef, 2> two;
    ASSERT_TRUE(pool_.Allocate(two));
    const BlockRef revived = pool_.Acquire(BlockId{0});
    EXPECT_EQ(pool_.peak_active(), 3);
  }
  EXPECT_EQ(pool_.peak_active(), 3);
}

TEST(BlockPoolDeathTest, NoShareMayOutliveThePool) {
  const auto leak = [] {
    Evictions evictions;
    BlockRef block;
    BlockPool pool(1, &evictions);
    (void)pool.Allocate({&block, 1});
    // `pool` is destroyed before `block`.
  };
  EXPECT_DEATH(leak(), "1 block shares outlive their pool");
}

TEST(BlockPool, OneBlockIsEnough) {
  Evictions evictions;
  BlockPool pool(1, &evictions);
  for (int i = 0; i < 3; ++i) {
    BlockRef block;
    ASSERT_TRUE(pool.Allocate({&block, 1}));
    EXPECT_EQ(block.id(), BlockId{0});
    EXPECT_FALSE(pool.Allocate({&block, 1}));
    pool.MarkReusable(block.id());
  }
  EXPECT_EQ(pool.evictions(), 2);
  EXPECT_EQ(pool.Audit(), absl::OkStatus());
}

}  // namespace
}  // namespace quire::block_manager
