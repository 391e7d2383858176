#include "simulator/buddy_allocator.h"

#include <gtest/gtest.h>

#include <set>

#include "base/philox.h"

namespace quire::simulator {
namespace {

using Piece = BuddyAllocator::Piece;

TEST(BuddyAllocatorTest, SevenMaximumLengthsFitThePapersPool) {
  BuddyAllocator slots(15'700);
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(slots.Allocate(2048).has_value()) << i;
  EXPECT_FALSE(slots.Allocate(2048).has_value());
  EXPECT_EQ(slots.num_free(), 15'700 - 7 * 2048);
}

TEST(BuddyAllocatorTest, RoundsUpToPowersOfTwoAndSplitsTheSmallestPieceThatDoes) {
  BuddyAllocator slots(24);  // 16 at 0, 8 at 16.
  const auto piece = slots.Allocate(3);
  ASSERT_TRUE(piece.has_value());
  EXPECT_EQ(piece->size(), 4);
  EXPECT_EQ(piece->offset, 16);
  EXPECT_EQ(slots.Allocate(16)->offset, 0);
  EXPECT_EQ(slots.Allocate(4)->offset, 20);
  EXPECT_EQ(slots.num_free(), 0);
}

TEST(BuddyAllocatorTest, BuddiesMergeWhenBothAreFree) {
  BuddyAllocator slots(16);
  const Piece a = *slots.Allocate(8), b = *slots.Allocate(4), c = *slots.Allocate(4);
  slots.Free(b);
  EXPECT_FALSE(slots.Allocate(8).has_value());
  slots.Free(c);
  const auto merged = slots.Allocate(8);
  ASSERT_TRUE(merged.has_value());
  slots.Free(*merged);
  slots.Free(a);
  EXPECT_EQ(slots.Allocate(16)->offset, 0);
}

TEST(BuddyAllocatorTest, KnowsWhatItCanNeverHold) {
  const BuddyAllocator slots(15'700);
  EXPECT_TRUE(slots.CanHold(8192));
  EXPECT_FALSE(slots.CanHold(8193));
}

TEST(BuddyAllocatorTest, PiecesNeverOverlapAndNothingIsLost) {
  constexpr std::int64_t kCapacity = 1000;
  BuddyAllocator slots(kCapacity);
  std::vector<Piece> held;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const double u = PhiloxUniform(7, 0, i);
    if (u < 0.5 && !held.empty()) {
      const auto at =
          static_cast<std::size_t>(PhiloxUniform(7, 1, i) * static_cast<double>(held.size()));
      slots.Free(held[at]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (const auto piece =
                   slots.Allocate(1 + static_cast<std::int64_t>(PhiloxUniform(7, 2, i) * 100))) {
      held.push_back(*piece);
    }
    std::int64_t used = 0;
    std::set<std::int64_t> taken;
    for (const Piece& piece : held) {
      used += piece.size();
      ASSERT_LE(piece.offset + piece.size(), kCapacity);
      for (std::int64_t slot = 0; slot < piece.size(); ++slot) taken.insert(piece.offset + slot);
    }
    ASSERT_EQ(std::ssize(taken), used) << "step " << i;
    ASSERT_EQ(slots.num_free(), kCapacity - used) << "step " << i;
  }
}

}  // namespace
}  // namespace quire::simulator
