#include "block_manager/content_history.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire::block_manager {
namespace {

using Memory = ContentHistory::Memory;
constexpr std::uint32_t kSaltA = 1, kSaltB = 2;

// All contents with the same low half share one set, whatever the high half.
ContentHash InOneSet(std::uint64_t i) { return (2 * i + 1) << 32 | 5; }

TEST(ContentHistory, TellsTheSaltsApart) {
  ContentHistory history(8);
  EXPECT_EQ(history.Recall(InOneSet(0), kSaltA), Memory::kNone);
  history.Store(BlockId{3}, InOneSet(0), kSaltA);
  EXPECT_EQ(history.content(BlockId{3}), InOneSet(0));
  EXPECT_EQ(history.Recall(InOneSet(0), kSaltA), Memory::kUnderThisSalt);
  EXPECT_EQ(history.Recall(InOneSet(0), kSaltB), Memory::kUnderOtherSalts);
  EXPECT_EQ(history.Recall(InOneSet(1), kSaltA), Memory::kNone);
  history.Store(BlockId{4}, InOneSet(0), kSaltB);
  EXPECT_EQ(history.Recall(InOneSet(0), kSaltA), Memory::kUnderThisSalt);
  EXPECT_EQ(history.Recall(InOneSet(0), kSaltB), Memory::kUnderThisSalt);
}

TEST(ContentHistory, ForgetsTheLeastRecentlyNotedOfASet) {
  ContentHistory history(8);
  for (std::int32_t i = 0; i < 8; ++i) {
    history.Store(BlockId{i}, InOneSet(static_cast<std::uint64_t>(i)), kSaltA);
  }
  history.Touch(BlockId{0}, kSaltA);
  history.Store(BlockId{1}, InOneSet(8), kSaltA);
  EXPECT_EQ(history.Recall(InOneSet(0), kSaltA), Memory::kUnderThisSalt);
  EXPECT_EQ(history.Recall(InOneSet(1), kSaltA), Memory::kNone);
  for (std::uint64_t i = 2; i <= 8; ++i) {
    EXPECT_EQ(history.Recall(InOneSet(i), kSaltA), Memory::kUnderThisSalt) << i;
  }
}

TEST(ContentHistory, NotingAContentAgainPushesNoneOut) {
  ContentHistory history(8);
  for (std::int32_t i = 0; i < 8; ++i) {
    history.Store(BlockId{i}, InOneSet(static_cast<std::uint64_t>(i)), kSaltA);
  }
  for (std::int32_t i = 0; i < 8; ++i) history.Touch(BlockId{i % 4}, kSaltA);
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(history.Recall(InOneSet(i), kSaltA), Memory::kUnderThisSalt) << i;
  }
}

TEST(ContentHistory, AHashNamesAllTokensOfThePrefix) {
  const std::vector<TokenId> a = {1, 2, 3, 4}, b = {1, 2, 3, 5};
  const ContentHash first = ContentHistory::Extend(kEmptyPrefix, a);
  EXPECT_EQ(ContentHistory::Extend(kEmptyPrefix, a), first);
  EXPECT_NE(ContentHistory::Extend(kEmptyPrefix, b), first);
  EXPECT_NE(ContentHistory::Extend(first, a), first);
  EXPECT_NE(ContentHistory::Extend(first, b),
            ContentHistory::Extend(ContentHistory::Extend(kEmptyPrefix, b), b));
}

}  // namespace
}  // namespace quire::block_manager
