#include "block_manager/prefix_index.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace quire::block_manager {
namespace {

constexpr int kBlockSize = 4;
constexpr int kCapacity = 8;

std::uint64_t AlwaysCollides(const PrefixKey&, std::uint64_t) { return 42; }

// Every test runs with the real hash and with one that always collides.
class PrefixIndexTest : public testing::TestWithParam<PrefixHash> {
 protected:
  using Tokens = std::vector<TokenId>;

  PrefixIndexTest() : index_(kCapacity, kBlockSize, GetParam(), 5, &salts_) {}
  ~PrefixIndexTest() override { EXPECT_EQ(index_.Audit(), absl::OkStatus()); }

  void Insert(const PrefixKey& key, BlockId id) { EXPECT_EQ(index_.FindOrInsert(key, id), id); }

  SaltRegistry salts_;
  PrefixIndex index_;
  const Tokens a_ = {1, 2, 3, 4}, b_ = {5, 6, 7, 8};
};

INSTANTIATE_TEST_SUITE_P(Hashes, PrefixIndexTest, testing::Values(&HashPrefixKey, &AlwaysCollides),
                         [](const testing::TestParamInfo<PrefixHash>& hash) {
                           return hash.index == 0 ? "Xxh3" : "AlwaysCollides";
                         });

TEST_P(PrefixIndexTest, FindsWhatWasInserted) {
  EXPECT_EQ(index_.Find({SaltId{}, kNoParent, a_}), std::nullopt);
  Insert({SaltId{}, kNoParent, a_}, BlockId{3});
  EXPECT_EQ(index_.Find({SaltId{}, kNoParent, a_}), BlockId{3});
  EXPECT_TRUE(index_.contains(BlockId{3}));
  EXPECT_FALSE(index_.contains(BlockId{2}));
  EXPECT_EQ(index_.size(), 1);
}

TEST_P(PrefixIndexTest, C01_HitIsVerifiedByTokens) {
  Insert({SaltId{}, kNoParent, a_}, BlockId{0});
  EXPECT_EQ(index_.Find({SaltId{}, kNoParent, b_}), std::nullopt);
  for (int i = 0; i < kBlockSize; ++i) {
    Tokens other = a_;
    ++other[static_cast<std::size_t>(i)];
    EXPECT_EQ(index_.Find({SaltId{}, kNoParent, other}), std::nullopt) << i;
  }
}

TEST_P(PrefixIndexTest, C02_EveryBitOfATokenCounts) {
  Insert({SaltId{}, kNoParent, a_}, BlockId{0});
  for (int bit = 0; bit < 31; ++bit) {
    Tokens other = a_;
    other[1] ^= 1 << bit;
    EXPECT_EQ(index_.Find({SaltId{}, kNoParent, other}), std::nullopt) << bit;
  }
}

TEST_P(PrefixIndexTest, C01_HitIsVerifiedByParent) {
  Insert({SaltId{}, kNoParent, a_}, BlockId{0});
  Insert({SaltId{}, kNoParent, b_}, BlockId{1});
  Insert({SaltId{}, index_.identity(BlockId{0}), a_}, BlockId{2});
  EXPECT_EQ(index_.Find({SaltId{}, index_.identity(BlockId{0}), a_}), BlockId{2});
  EXPECT_EQ(index_.Find({SaltId{}, index_.identity(BlockId{1}), a_}), std::nullopt);
  EXPECT_EQ(index_.Find({SaltId{}, kNoParent, a_}), BlockId{0});
}

TEST_P(PrefixIndexTest, C17_HitIsVerifiedBySalt) {
  const SaltRef one(&salts_, CacheSalt::ForRequest("one"));
  const SaltRef two(&salts_, CacheSalt::ForRequest("two"));
  Insert({one.id(), kNoParent, a_}, BlockId{0});
  EXPECT_EQ(index_.Find({two.id(), kNoParent, a_}), std::nullopt);
  EXPECT_EQ(index_.Find({SaltId{}, kNoParent, a_}), std::nullopt);
  Insert({two.id(), kNoParent, a_}, BlockId{1});
  EXPECT_EQ(index_.Find({one.id(), kNoParent, a_}), BlockId{0});
  EXPECT_EQ(index_.Find({two.id(), kNoParent, a_}), BlockId{1});
}

TEST_P(PrefixIndexTest, C07_ErasedContentIsNotFoundAndItsIdentityNeverReturns) {
  Insert({SaltId{}, kNoParent, a_}, BlockId{0});
  const BlockIdentity old_parent = index_.identity(BlockId{0});
  Insert({SaltId{}, old_parent, b_}, BlockId{1});
  index_.Erase(BlockId{0});
  EXPECT_EQ(index_.Find({SaltId{}, kNoParent, a_}), std::nullopt);
  // The same block, even with the same content, is another parent now.
  Insert({SaltId{}, kNoParent, a_}, BlockId{0});
  EXPECT_NE(index_.identity(BlockId{0}), old_parent);
  EXPECT_EQ(index_.Find({SaltId{}, index_.identity(BlockId{0}), b_}), std::nullopt);
}

TEST_P(PrefixIndexTest, AContentIsIndexedOnce) {
  Insert({SaltId{}, kNoParent, a_}, BlockId{0});
  EXPECT_EQ(index_.FindOrInsert({SaltId{}, kNoParent, a_}, BlockId{1}), BlockId{0});
  EXPECT_FALSE(index_.contains(BlockId{1}));
  EXPECT_EQ(index_.size(), 1);
}

TEST_P(PrefixIndexTest, ErasesFromAnywhereInABucket) {
  for (const int victim : {0, 3, 7}) {
    PrefixIndex index(kCapacity, kBlockSize, GetParam(), 0, &salts_);
    std::vector<Tokens> contents;
    for (int i = 0; i < kCapacity; ++i) {
      contents.push_back({i, i, i, i});
      ASSERT_EQ(index.FindOrInsert({SaltId{}, kNoParent, contents.back()}, BlockId{i}), BlockId{i});
    }
    index.Erase(BlockId{victim});
    for (int i = 0; i < kCapacity; ++i) {
      const std::optional<BlockId> expected =
          i == victim ? std::nullopt : std::optional(BlockId{i});
      EXPECT_EQ(index.Find({SaltId{}, kNoParent, contents[static_cast<std::size_t>(i)]}), expected);
    }
    EXPECT_EQ(index.Audit(), absl::OkStatus());
    EXPECT_EQ(index.size(), kCapacity - 1);
  }
}

TEST_P(PrefixIndexTest, KeepsASaltAliveWhileABlockIsIndexedUnderIt) {
  SaltId id;
  {
    const SaltRef salt(&salts_, CacheSalt::ForRequest("gone"));
    id = salt.id();
    Insert({id, kNoParent, a_}, BlockId{0});
  }
  EXPECT_EQ(salts_.size(), 1u);
  EXPECT_EQ(SaltRef(&salts_, CacheSalt::ForRequest("gone")).id(), id);
  index_.Erase(BlockId{0});
  EXPECT_EQ(salts_.size(), 0u);
}

TEST_P(PrefixIndexTest, C13_DestroyedWarmItGivesItsSaltsBack) {
  {
    PrefixIndex index(kCapacity, kBlockSize, GetParam(), 0, &salts_);
    const SaltRef salt(&salts_, CacheSalt::ForRequest("tenant"));
    ASSERT_EQ(index.FindOrInsert({salt.id(), kNoParent, a_}, BlockId{0}), BlockId{0});
  }
  EXPECT_EQ(salts_.size(), 0u);
}

TEST(HashPrefixKey, DependsOnEveryPartOfTheKey) {
  const std::vector<TokenId> a = {1, 2, 3, 4}, b = {1, 2, 3, 5};
  const std::uint64_t base = HashPrefixKey({SaltId{}, kNoParent, a}, 0);
  EXPECT_EQ(HashPrefixKey({SaltId{}, kNoParent, a}, 0), base);
  EXPECT_NE(HashPrefixKey({SaltId{}, kNoParent, b}, 0), base);
  EXPECT_NE(HashPrefixKey({SaltId{1}, kNoParent, a}, 0), base);
  EXPECT_NE(HashPrefixKey({SaltId{}, {BlockId{0}, 0}, a}, 0), base);
  EXPECT_NE(HashPrefixKey({SaltId{}, {BlockId{0}, 1}, a}, 0),
            HashPrefixKey({SaltId{}, {BlockId{0}, 0}, a}, 0));
  EXPECT_NE(HashPrefixKey({SaltId{}, kNoParent, a}, 1), base);
}

}  // namespace
}  // namespace quire::block_manager
