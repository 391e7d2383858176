#include "block_manager/block_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/status/status.h"

namespace quire::block_manager {
namespace {

using testing::ElementsAre;

class Evictions final : public BlockPool::EvictionObserver {
 public:
  void OnEvict(BlockId id) override { ids.push_back(id.value()); }
  std::vector<int> ids;
};

class BlockTableTest : public testing::Test {
 protected:
  ~BlockTableTest() override { EXPECT_EQ(pool_.Audit(), absl::OkStatus()); }

  BlockTable MakeTable(int num_blocks) {
    BlockTable table(16);
    std::vector<BlockRef> blocks(static_cast<std::size_t>(num_blocks));
    EXPECT_TRUE(pool_.Allocate(blocks));
    for (BlockRef& block : blocks) {
      pool_.MarkReusable(block.id());
      table.Append(std::move(block));
    }
    return table;
  }
  static std::vector<int> Ids(const BlockTable& table) {
    std::vector<int> ids;
    for (const BlockId id : table.blocks()) ids.push_back(id.value());
    return ids;
  }

  Evictions evictions_;
  BlockPool pool_{8, &evictions_};
};

TEST_F(BlockTableTest, MapsPositionsToBlocks) {
  const BlockTable table = MakeTable(3);
  EXPECT_THAT(Ids(table), ElementsAre(0, 1, 2));
  EXPECT_EQ(table.end_position(), 48);
  EXPECT_EQ(table.index_of(0), 0);
  EXPECT_EQ(table.index_of(15), 0);
  EXPECT_EQ(table.index_of(16), 1);
  EXPECT_EQ(table.index_of(48), 3);  // The block that is to come.
  EXPECT_EQ(table[1], BlockId{1});
}

TEST_F(BlockTableTest, AnEmptyTableCanStartAtAnyBlock) {
  BlockTable table(16);
  table.StartAt(160);
  EXPECT_EQ(table.first_position(), 160);
  EXPECT_EQ(table.end_position(), 160);
  std::vector<BlockRef> block(1);
  ASSERT_TRUE(pool_.Allocate(block));
  table.Append(std::move(block[0]));
  EXPECT_EQ(table.index_of(175), 0);
  EXPECT_EQ(table.end_position(), 176);
  EXPECT_EQ(table.Fork().first_position(), 160);
  table.Clear();
  EXPECT_EQ(table.first_position(), 0);
}

TEST_F(BlockTableTest, ForkSharesEveryBlock) {
  const BlockTable table = MakeTable(2);
  {
    const BlockTable fork = table.Fork();
    EXPECT_EQ(Ids(fork), Ids(table));
    EXPECT_EQ(pool_.owners(BlockId{0}), 2);
    EXPECT_EQ(pool_.owners(BlockId{1}), 2);
    EXPECT_EQ(pool_.num_active(), 2);
  }
  EXPECT_EQ(pool_.owners(BlockId{0}), 1);
}

TEST_F(BlockTableTest, ReplaceSwapsOneBlock) {
  BlockTable table = MakeTable(2);
  BlockRef other;
  ASSERT_TRUE(pool_.Allocate({&other, 1}));
  {
    const BlockRef old = table.Replace(1, std::move(other));
    EXPECT_EQ(old.id(), BlockId{1});
    EXPECT_THAT(Ids(table), ElementsAre(0, 2));
    EXPECT_EQ(pool_.state(BlockId{1}), BlockState::kActive);
  }
  EXPECT_EQ(pool_.state(BlockId{1}), BlockState::kCached);
}

TEST_F(BlockTableTest, GivesItsTailBackBeforeItsHead) {
  { const BlockTable table = MakeTable(3); }
  std::vector<BlockRef> all(8);
  ASSERT_TRUE(pool_.Allocate(all));
  EXPECT_THAT(evictions_.ids, ElementsAre(2, 1, 0));
}

TEST_F(BlockTableTest, SlideFreesOnlyBlocksWhollyLeftOfThePosition) {
  BlockTable table = MakeTable(4);
  EXPECT_EQ(table.SlideTo(15), 0);
  EXPECT_EQ(table.SlideTo(16), 1);
  EXPECT_THAT(Ids(table), ElementsAre(1, 2, 3));
  EXPECT_EQ(table.first_position(), 16);
  EXPECT_EQ(table.end_position(), 64);
  EXPECT_EQ(table.index_of(16), 0);
  EXPECT_EQ(table.SlideTo(47), 1);
  EXPECT_EQ(table.SlideTo(10), 0);  // Never back.
  EXPECT_THAT(Ids(table), ElementsAre(2, 3));
  EXPECT_EQ(table.SlideTo(1000), 2);  // Never beyond its end.
  EXPECT_EQ(table.first_position(), 64);
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(pool_.num_active(), 0);
}

TEST_F(BlockTableTest, C16_SlidingASharedTableLeavesTheForkWhole) {
  BlockTable table = MakeTable(3);
  const BlockTable fork = table.Fork();
  EXPECT_EQ(table.SlideTo(32), 2);
  EXPECT_EQ(pool_.owners(BlockId{0}), 1);
  EXPECT_EQ(pool_.owners(BlockId{2}), 2);
  EXPECT_THAT(Ids(fork), ElementsAre(0, 1, 2));
  EXPECT_EQ(pool_.num_active(), 3);
  const BlockTable late_fork = table.Fork();
  EXPECT_EQ(late_fork.first_position(), 32);
  EXPECT_EQ(pool_.owners(BlockId{2}), 3);
}

TEST_F(BlockTableTest, ClearStartsOver) {
  BlockTable table = MakeTable(3);
  table.SlideTo(16);
  table.Clear();
  EXPECT_EQ(table.first_position(), 0);
  EXPECT_EQ(table.end_position(), 0);
  EXPECT_EQ(pool_.num_active(), 0);
}

TEST_F(BlockTableTest, AssignmentGivesTheOldBlocksBack) {
  BlockTable table = MakeTable(3);
  table = MakeTable(1);
  EXPECT_THAT(Ids(table), ElementsAre(3));
  EXPECT_EQ(pool_.num_active(), 1);
}

}  // namespace
}  // namespace quire::block_manager
