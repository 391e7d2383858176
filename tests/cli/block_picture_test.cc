#include "cli/block_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

v1::GetBlockMapResponse MapOf(const std::string& picture) {
  v1::GetBlockMapResponse map;
  for (const char c : picture) {
    map.add_states(c == '.'   ? v1::BLOCK_STATE_FREE
                   : c == '+' ? v1::BLOCK_STATE_CACHED
                              : v1::BLOCK_STATE_ACTIVE);
    map.add_owners(c == '#' ? 1 : c == '8' ? 8 : c == '9' ? 30 : 0);
  }
  return map;
}

TEST(BlockPicture, ShowsEveryStateAndHowManyShareABlock) {
  EXPECT_EQ(DrawBlocks(MapOf("##.8+9."), 128, Color::kOff), "##.8+9.");
  EXPECT_EQ(BlocksPerCell(7, 128), 1U);
}

TEST(BlockPicture, ShowsTheBusiestBlockOfACell) {
  EXPECT_EQ(BlocksPerCell(10, 4), 3U);
  EXPECT_EQ(DrawBlocks(MapOf("...+.#8.#."), 4, Color::kOff), ".#8.");
  EXPECT_THAT(BlockLegend(3, Color::kOff), HasSubstr("3 blocks"));
}

TEST(BlockPicture, PaintsOnlyWhenAsked) {
  EXPECT_EQ(DrawBlocks(MapOf("##+"), 128, Color::kOn), "\x1b[32m##\x1b[33m+\x1b[0m");
  EXPECT_EQ(BlockLegend(1, Color::kOff).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace quire::cli
