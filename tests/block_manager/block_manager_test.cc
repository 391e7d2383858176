#include "block_manager/block_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/block_manager/block_manager_fixture.h"

namespace quire::block_manager {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class BlockManagerTest : public BlockManagerFixture {};

TEST_F(BlockManagerTest, AdmitGivesBlocksForAllTokensAndComputesNothing) {
  Start(8);
  SequenceBlocks sequence = New();
  EXPECT_EQ(manager_->Admit(&sequence, Range(33), {}), Verdict::kNow);
  EXPECT_THAT(Ids(sequence), ElementsAre(0, 1, 2));
  EXPECT_EQ(sequence.num_computed_tokens(), 0);
  ExpectCounts(3, 0, 5);
  EXPECT_EQ(manager_->stats().useful_slots, 0);
  ExpectSound({&sequence});
}

TEST_F(BlockManagerTest, BlocksAreFoundOnlyOnceComputed) {
  Start(8);
  const Tokens tokens = Range(40);
  SequenceBlocks sequence = New();
  ASSERT_EQ(manager_->Admit(&sequence, tokens, {}), Verdict::kNow);
  EXPECT_THAT(manager_->Match(New(), tokens), IsEmpty());
  manager_->Commit(&sequence, tokens, 15);
  EXPECT_THAT(manager_->Match(New(), tokens), IsEmpty());
  manager_->Commit(&sequence, tokens, 31);
  EXPECT_THAT(manager_->Match(New(), tokens), ElementsAre(BlockId{0}));
  manager_->Commit(&sequence, tokens, 40);
  EXPECT_THAT(manager_->Match(New(), tokens), ElementsAre(BlockId{0}, BlockId{1}));
  ExpectSound({&sequence});
}

TEST_F(BlockManagerTest, ReleasedFullBlocksStayCachedAndAreFoundAgain) {
  Start(8);
  { const SequenceBlocks sequence = Computed(Range(40)); }
  ExpectCounts(0, 2, 6);
  SequenceBlocks again = New();
  ASSERT_EQ(manager_->Admit(&again, Concat(Range(32), Range(8, 10'000)), {}), Verdict::kNow);
  EXPECT_EQ(again.num_computed_tokens(), 32);
  ExpectCounts(3, 0, 5);
  ExpectSound({&again});
}

TEST_F(BlockManagerTest, C03_AtLeastOneTokenIsLeftToCompute) {
  Start(16);
  const std::pair<int, int> cases[] = {{1, 0},   {15, 0},  {16, 0},  {17, 16}, {31, 16},
                                       {32, 16}, {33, 32}, {48, 32}, {49, 48}};
  for (const auto& [length, hits] : cases) {
    const Tokens tokens = Range(length, length * 10'000);
    { const SequenceBlocks first = Computed(tokens); }
    EXPECT_EQ(Hits(tokens), hits) << length;
    { const SequenceBlocks second = Computed(tokens); }
    EXPECT_EQ(Hits(tokens), hits) << length;
    manager_->ResetPrefixCache();
  }
}

TEST_F(BlockManagerTest, C03_WithBlocksOfOneTokenAllButTheLastHit) {
  Start(16, 1);
  { const SequenceBlocks sequence = Computed(Range(5)); }
  EXPECT_EQ(Hits(Range(5)), 4);
  EXPECT_EQ(Hits(Range(1)), 0);
}

TEST_F(BlockManagerTest, C01_CollidingHashesNeverShareContent) {
  Start({.num_blocks = 16,
         .hash = [](const PrefixKey&, std::uint64_t) -> std::uint64_t { return 1; }});
  const SequenceBlocks a = Computed(Range(33)), b = Computed(Range(33, 10'000));
  EXPECT_EQ(Hits(Range(33)), 32);
  EXPECT_EQ(Hits(Range(33, 10'000)), 32);
  EXPECT_EQ(Hits(Range(33, 20'000)), 0);
  // The second block of `a` after the first of `b` is another content.
  const Tokens mixed = Concat(Concat(Range(16, 10'000), Range(16, 16)), {7});
  EXPECT_EQ(Hits(mixed), 16);
  ExpectSound({&a, &b});
}

TEST_F(BlockManagerTest, C02_TokensThatAgreeInTheirLowBitsDiffer) {
  Start(16);
  const SequenceBlocks sequence = Computed(Range(33));
  for (const int offset : {256, 65'536, 1 << 24}) {
    Tokens other = Range(33);
    for (TokenId& token : other) token += offset;
    EXPECT_EQ(Hits(other), 0) << offset;
  }
}

TEST_F(BlockManagerTest, C18_SaltsShareWithinAndNotAcross) {
  Start(16);
  { const SequenceBlocks first = Computed(Range(64), "A"); }
  EXPECT_EQ(Hits(Range(64), "A"), 48);
  EXPECT_EQ(Hits(Range(64), "B"), 0);
  EXPECT_EQ(Hits(Range(64)), 0);
}

TEST_F(BlockManagerTest, C05_ARefusedAdmissionLeavesNoTrace) {
  Start(6);
  { const SequenceBlocks warm = Computed(Range(32)); }
  const std::string before = Fingerprint();
  SequenceBlocks too_large = New();
  // The 2 cached blocks and 6 more: never in a pool of 6. With 4 more and one kept: not now.
  EXPECT_EQ(manager_->Admit(&too_large, Range(128), {}), Verdict::kNever);
  EXPECT_EQ(manager_->Admit(&too_large, Range(96), {.keep_available = 1}), Verdict::kNotNow);
  EXPECT_EQ(Fingerprint(), before);
  EXPECT_TRUE(too_large.table().empty());
  EXPECT_EQ(too_large.num_computed_tokens(), 0);
  const SequenceBlocks unrelated = Computed(Range(96, 10'000));
  ExpectCounts(6, 0, 0);
  ExpectSound({&too_large, &unrelated});
}

TEST_F(BlockManagerTest, C06_ACachedHitIsNotAvailableTwice) {
  Start(5);
  { const SequenceBlocks warm = Computed(Range(32)); }
  ExpectCounts(0, 2, 3);
  SequenceBlocks large = New();
  EXPECT_EQ(manager_->Admit(&large, Range(96), {}), Verdict::kNever);
  const SequenceBlocks other = Computed(Range(16, 10'000));
  // 2 hits and 3 new blocks, while 2 cached and 2 free are available.
  EXPECT_EQ(manager_->Admit(&large, Range(80), {}), Verdict::kNotNow);
  EXPECT_EQ(manager_->Admit(&large, Range(64), {}), Verdict::kNow);
  EXPECT_EQ(large.num_computed_tokens(), 32);
  ExpectCounts(5, 0, 0);
  ExpectSound({&large, &other});
}

TEST_F(BlockManagerTest, ActiveHitsCostNothing) {
  Start(4);
  const SequenceBlocks first = Computed(Range(48));
  SequenceBlocks second = New();
  EXPECT_EQ(manager_->Admit(&second, Concat(Range(48), {9}), {.keep_available = 1}),
            Verdict::kNotNow);
  EXPECT_EQ(manager_->Admit(&second, Concat(Range(48), {9}), {}), Verdict::kNow);
  EXPECT_EQ(second.num_computed_tokens(), 48);
  EXPECT_EQ(manager_->stats().logical_blocks, 7);
  ExpectCounts(4, 0, 0);
  ExpectSound({&first, &second});
}

TEST_F(BlockManagerTest, NewBlocksDoNotEvictTheHitsOfTheSameAdmission) {
  Start(4);
  { const SequenceBlocks warm = Computed(Range(64)); }
  ExpectCounts(0, 4, 0);
  SequenceBlocks sequence = New();
  ASSERT_EQ(manager_->Admit(&sequence, Concat(Range(48), {9}), {}), Verdict::kNow);
  EXPECT_EQ(sequence.num_computed_tokens(), 48);
  EXPECT_THAT(Ids(sequence), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(manager_->stats().evictions, 1);
  ExpectSound({&sequence});
}

TEST_F(BlockManagerTest, C07_ContentOfARecycledBlockIsForgotten) {
  Start(4);
  const Tokens a = Range(32), b = Range(48, 10'000), c = Range(48, 20'000);
  { const SequenceBlocks sequence = Computed(a); }
  { const SequenceBlocks sequence = Computed(b); }
  { const SequenceBlocks sequence = Computed(c); }
  EXPECT_EQ(Hits(a), 0);
  EXPECT_LE(manager_->stats().cached, 4);
  const SequenceBlocks again = Computed(a);
  EXPECT_EQ(manager_->Match(New(), Concat(a, {1})).size(), 2u);
  ExpectSound({&again});
}

TEST_F(BlockManagerTest, C07_AChildIsNotFoundUnderARecycledParent) {
  Start(2);
  { const SequenceBlocks sequence = Computed(Range(32)); }
  // Evicts block 1, then block 0; both get new content.
  { const SequenceBlocks sequence = Computed(Range(32, 10'000)); }
  { const SequenceBlocks sequence = Computed(Range(16)); }
  EXPECT_EQ(Hits(Range(32)), 16);
}

TEST_F(BlockManagerTest, C08_FillOfTheLastBlock) {
  const std::pair<int, int> cases[] = {{1, 1}, {15, 15}, {16, 16}, {17, 1}, {32, 16}};
  for (const auto& [length, fill] : cases) {
    Start(4);
    {
      const SequenceBlocks sequence = Computed(Range(length));
      const int full_blocks = (length - 1) / 16;
      EXPECT_EQ(sequence.table().size(), full_blocks + 1);
      EXPECT_EQ(manager_->stats().useful_slots, 16 * full_blocks + fill);
      ExpectSound({&sequence});
    }
    ExpectCounts(0, length / 16, 4 - length / 16);
    ExpectSound();
    manager_->ResetPrefixCache();
    std::vector<int> ids = Ids(Computed(Range(64, 10'000)));
    std::ranges::sort(ids);
    EXPECT_THAT(ids, ElementsAre(0, 1, 2, 3)) << length;
  }
}

TEST_F(BlockManagerTest, C08_NoTokensNoBlocks) {
  Start(4);
  EXPECT_EQ(manager_->BlocksForTokens(0), 0);
  SequenceBlocks sequence = New();
  EXPECT_EQ(manager_->Admit(&sequence, {}, {}), Verdict::kNow);
  EXPECT_TRUE(sequence.table().empty());
  ExpectSound({&sequence});
}

TEST_F(BlockManagerTest, C11_SharedBlocksAreCountedOnce) {
  Start(64);
  const Tokens prefix = Range(64);
  std::vector<SequenceBlocks> sequences;
  for (int i = 0; i < 50; ++i) {
    sequences.push_back(Computed(Concat(prefix, Range(3, 10'000 * (i + 1)))));
    std::vector<const SequenceBlocks*> alive;
    for (const SequenceBlocks& sequence : sequences) alive.push_back(&sequence);
    ExpectSound(alive);
  }
  ExpectCounts(54, 0, 10);
  EXPECT_EQ(manager_->stats().logical_blocks, 250);
  EXPECT_EQ(manager_->stats().useful_slots, 64 + 50 * 3);
  sequences.clear();
  ExpectCounts(0, 4, 60);
  EXPECT_EQ(manager_->stats().logical_blocks, 0);
  EXPECT_EQ(manager_->stats().useful_slots, 0);
  ExpectSound();
}

TEST_F(BlockManagerTest, C13_DestroyedWarmItLeaksNothing) {
  Start(8);
  { const SequenceBlocks sequence = Computed(Range(64), "tenant"); }
  ExpectCounts(0, 4, 4);
  manager_.reset();  // The leak check of AddressSanitizer does the rest.
}

TEST_F(BlockManagerTest, TailsAreEvictedBeforeHeads) {
  for (int evicted = 1; evicted <= 3; ++evicted) {
    Start(4);
    { const SequenceBlocks sequence = Computed(Range(64)); }
    { const SequenceBlocks other = Computed(Range(16 * evicted, 10'000)); }
    EXPECT_EQ(manager_->Match(New(), Range(65)).size(), static_cast<std::size_t>(4 - evicted));
  }
}

TEST_F(BlockManagerTest, ALateHitMakesAPrefixRecent) {
  Start(4);
  { const SequenceBlocks a = Computed(Range(32)); }
  { const SequenceBlocks b = Computed(Range(32, 10'000)); }
  EXPECT_EQ(Hits(Concat(Range(16), {7})), 16);  // Evicts a's tail for the new token's block.
  const SequenceBlocks c = Computed(Range(48, 20'000));
  EXPECT_EQ(manager_->Match(New(), Range(17)).size(), 1u);
  EXPECT_THAT(manager_->Match(New(), Range(17, 10'000)), IsEmpty());
}

TEST_F(BlockManagerTest, SequencesThatComputeOneContentEndUpSharingIt) {
  Start(8);
  const Tokens tokens = Range(32);
  SequenceBlocks a = New(), b = New();
  ASSERT_EQ(manager_->Admit(&a, tokens, {}), Verdict::kNow);
  ASSERT_EQ(manager_->Admit(&b, tokens, {}), Verdict::kNow);
  ExpectCounts(4, 0, 4);
  manager_->Commit(&a, tokens, 32);
  manager_->Commit(&b, tokens, 32);
  EXPECT_EQ(Ids(b), Ids(a));
  ExpectCounts(2, 0, 6);
  EXPECT_EQ(manager_->stats().useful_slots, 32);
  EXPECT_EQ(manager_->stats().logical_blocks, 4);
  ExpectSound({&a, &b});
}

TEST_F(BlockManagerTest, AdoptingACachedBlockRevivesIt) {
  Start(8);
  SequenceBlocks late = New();
  ASSERT_EQ(manager_->Admit(&late, Range(16), {}), Verdict::kNow);
  { const SequenceBlocks early = Computed(Range(16)); }
  ExpectCounts(1, 1, 6);
  manager_->Commit(&late, Range(16), 16);
  ExpectCounts(1, 0, 7);
  EXPECT_EQ(manager_->stats().useful_slots, 16);
  ExpectSound({&late});
}

TEST_F(BlockManagerTest, WithoutPrefixCachingNothingIsKept) {
  Start({.num_blocks = 4, .enable_prefix_caching = false});
  { const SequenceBlocks sequence = Computed(Range(40)); }
  ExpectCounts(0, 0, 4);
  EXPECT_EQ(Hits(Range(40)), 0);
  EXPECT_THAT(manager_->Match(New(), Range(40)), IsEmpty());
  ExpectSound();
}

TEST_F(BlockManagerTest, BypassReadsNothingButFillsTheCache) {
  Start(8);
  const Tokens tokens = Range(33);
  { const SequenceBlocks warm = Computed(tokens); }
  SequenceBlocks bypass = New();
  ASSERT_EQ(manager_->Admit(&bypass, tokens, {.use_prefix_cache = false}), Verdict::kNow);
  EXPECT_EQ(bypass.num_computed_tokens(), 0);
  manager_->ResetPrefixCache();
  manager_->Commit(&bypass, tokens, 33);
  EXPECT_EQ(manager_->Match(New(), tokens).size(), 2u);
  ExpectSound({&bypass});
}

TEST_F(BlockManagerTest, ExtendAddsBlocksOnlyAtTheBorder) {
  Start(3);
  Tokens tokens = Range(31);
  SequenceBlocks sequence = Computed(tokens);
  EXPECT_EQ(Extend(&sequence, 32), Verdict::kNow);
  EXPECT_EQ(sequence.table().size(), 2);
  tokens.push_back(0);
  manager_->Commit(&sequence, tokens, 32);
  EXPECT_EQ(Extend(&sequence, 33), Verdict::kNow);
  EXPECT_EQ(sequence.table().size(), 3);
  EXPECT_EQ(Extend(&sequence, 48), Verdict::kNow);
  EXPECT_EQ(sequence.table().size(), 3);
  EXPECT_THAT(copies_, IsEmpty());
  ExpectSound({&sequence});
}

TEST_F(BlockManagerTest, ExtendAnswersNotNowAndNeverWithoutATrace) {
  Start(3);
  SequenceBlocks a = Computed(Range(32)), b = Computed(Range(16, 10'000));
  const std::string before = Fingerprint();
  EXPECT_EQ(Extend(&a, 33), Verdict::kNotNow);
  EXPECT_EQ(Extend(&a, 49), Verdict::kNever);
  EXPECT_EQ(Fingerprint(), before);
  manager_->Release(&b);
  EXPECT_EQ(Extend(&a, 33), Verdict::kNow);
  EXPECT_EQ(manager_->stats().evictions, 1);
  ExpectSound({&a, &b});
}

TEST_F(BlockManagerTest, ExtendByManyTokensIsAllOrNothing) {
  Start(4);
  SequenceBlocks sequence = Computed(Range(10));
  const SequenceBlocks other = Computed(Range(16, 10'000));
  EXPECT_EQ(Extend(&sequence, 60), Verdict::kNotNow);
  EXPECT_EQ(sequence.table().size(), 1);
  EXPECT_EQ(Extend(&sequence, 40), Verdict::kNow);
  EXPECT_EQ(sequence.table().size(), 3);
  ExpectSound({&sequence, &other});
}

TEST_F(BlockManagerTest, C15_APartialBlockIsCopiedOncePerWriterButTheLast) {
  Start(8);
  const Tokens prompt = Range(17);
  SequenceBlocks parent = Computed(prompt);
  SequenceBlocks second = manager_->Fork(parent), third = manager_->Fork(parent);
  ExpectCounts(2, 0, 6);
  EXPECT_EQ(manager_->stats().logical_blocks, 6);

  for (SequenceBlocks* branch : {&parent, &second, &third}) {
    EXPECT_EQ(Extend(branch, 18), Verdict::kNow);
  }
  EXPECT_THAT(copies_,
              ElementsAre(CopyOrder{BlockId{1}, BlockId{2}}, CopyOrder{BlockId{1}, BlockId{3}}));
  EXPECT_THAT(Ids(parent), ElementsAre(0, 2));
  EXPECT_THAT(Ids(second), ElementsAre(0, 3));
  EXPECT_THAT(Ids(third), ElementsAre(0, 1));  // In place.
  EXPECT_EQ(manager_->stats().copies_on_write, 2);
  manager_->FinishCopies();
  ExpectSound({&parent, &second, &third});

  // Nothing is shared but the full block, so nothing is copied again.
  copies_.clear();
  TokenId token = 100;
  for (SequenceBlocks* branch : {&parent, &second, &third}) {
    manager_->Commit(branch, Concat(prompt, {token++}), 18);
    EXPECT_EQ(Extend(branch, 19), Verdict::kNow);
  }
  EXPECT_THAT(copies_, IsEmpty());
  EXPECT_EQ(manager_->stats().useful_slots, 16 + 3 * 2);
  ExpectSound({&parent, &second, &third});
}

TEST_F(BlockManagerTest, C15_FullSharedBlocksAreNeverCopied) {
  Start(8);
  SequenceBlocks parent = Computed(Range(32));
  SequenceBlocks fork = manager_->Fork(parent);
  EXPECT_EQ(Extend(&fork, 33), Verdict::kNow);
  EXPECT_EQ(Extend(&parent, 33), Verdict::kNow);
  EXPECT_THAT(copies_, IsEmpty());
  EXPECT_THAT(Ids(parent), ElementsAre(0, 1, 3));
  EXPECT_THAT(Ids(fork), ElementsAre(0, 1, 2));
}

TEST_F(BlockManagerTest, CopyOnWriteIsRefusedWithoutATrace) {
  Start(2);
  SequenceBlocks parent = Computed(Range(17));
  SequenceBlocks fork = manager_->Fork(parent);
  const std::string before = Fingerprint();
  EXPECT_EQ(Extend(&fork, 18), Verdict::kNotNow);
  EXPECT_EQ(Fingerprint(), before);
  EXPECT_THAT(copies_, IsEmpty());
  manager_->Release(&parent);
  EXPECT_EQ(Extend(&fork, 18), Verdict::kNow);  // The last owner writes in place.
  EXPECT_THAT(copies_, IsEmpty());
  ExpectSound({&fork});
}

TEST_F(BlockManagerTest, SourceAndCopyAreHeldUntilTheCopyIsExecuted) {
  Start(4);
  SequenceBlocks parent = Computed(Range(17));
  SequenceBlocks fork = manager_->Fork(parent);
  ASSERT_EQ(Extend(&fork, 18), Verdict::kNow);
  manager_->Release(&parent);
  manager_->Release(&fork);
  // Blocks 1 and 2 belong to nobody, but nobody may write to them yet.
  ExpectCounts(2, 1, 1);
  EXPECT_EQ(manager_->stats().logical_blocks, 0);
  SequenceBlocks other = New();
  EXPECT_EQ(manager_->Admit(&other, Range(33, 10'000), {}), Verdict::kNotNow);
  manager_->FinishCopies();
  EXPECT_EQ(manager_->Admit(&other, Range(33, 10'000), {}), Verdict::kNow);
  ExpectSound({&other});
}

TEST_F(BlockManagerTest, ExtendDemandIsWhatExtendTakes) {
  Start(16);
  SequenceBlocks parent = Computed(Range(17));
  SequenceBlocks fork = manager_->Fork(parent), idle_fork = manager_->Fork(parent);
  SequenceBlocks border = Computed(Range(32, 10'000)), inside = Computed(Range(8, 20'000));
  ExtendDemand demand(manager_.get());
  const auto add_all = [&] {
    demand.Clear();
    demand.Add(parent, 18);
    demand.Add(fork, 18);
    demand.Add(border, 33);
    demand.Add(inside, 9);
  };
  add_all();
  EXPECT_EQ(demand.num_blocks(), 3);  // Two copies, as a third owner stays; one at the border.
  manager_->Release(&idle_fork);
  add_all();
  EXPECT_EQ(demand.num_blocks(), 2);  // One copy; the last owner writes in place.

  const std::int64_t available = manager_->num_available();
  ASSERT_EQ(Extend(&parent, 18), Verdict::kNow);
  ASSERT_EQ(Extend(&fork, 18), Verdict::kNow);
  ASSERT_EQ(Extend(&border, 33), Verdict::kNow);
  ASSERT_EQ(Extend(&inside, 9), Verdict::kNow);
  EXPECT_EQ(available - manager_->num_available(), 2);
  manager_->FinishCopies();
  ExpectSound({&parent, &fork, &border, &inside, &idle_fork});
}

TEST_F(BlockManagerTest, ForksIndexTheirOwnContinuations) {
  Start(16);
  const Tokens prompt = Range(20);
  SequenceBlocks parent = Computed(prompt);
  SequenceBlocks fork = manager_->Fork(parent);
  const Tokens one = Concat(prompt, Range(12, 10'000)), two = Concat(prompt, Range(12, 20'000));
  ASSERT_EQ(Extend(&parent, 32), Verdict::kNow);
  ASSERT_EQ(Extend(&fork, 32), Verdict::kNow);
  manager_->FinishCopies();
  manager_->Commit(&parent, one, 32);
  manager_->Commit(&fork, two, 32);
  EXPECT_EQ(Hits(Concat(one, {1})), 32);
  EXPECT_EQ(Hits(Concat(two, {1})), 32);
  EXPECT_EQ(Ids(parent)[0], Ids(fork)[0]);
  EXPECT_NE(Ids(parent)[1], Ids(fork)[1]);
  ExpectSound({&parent, &fork});
}

TEST_F(BlockManagerTest, ForkKeepsItsSalt) {
  Start(8);
  SequenceBlocks parent = Computed(Range(16), "A");
  SequenceBlocks fork = manager_->Fork(parent);
  manager_->Release(&parent);
  ASSERT_EQ(Extend(&fork, 32), Verdict::kNow);
  manager_->Commit(&fork, Range(32), 32);
  EXPECT_EQ(Hits(Range(33), "A"), 32);
  EXPECT_EQ(Hits(Range(33)), 0);
}

TEST_F(BlockManagerTest, C16_AWindowSlidesUnderForksWithoutFreeingTwice) {
  // Window 32: after each token the blocks wholly left of it go.
  Start(16);
  const Tokens prompt = Range(40);
  SequenceBlocks parent = Computed(prompt);
  SequenceBlocks fork = manager_->Fork(parent);
  Tokens tokens[] = {prompt, prompt};
  SequenceBlocks* branches[] = {&parent, &fork};
  for (int step = 0; step < 100; ++step) {
    for (int b = 0; b < 2; ++b) {
      const auto end = static_cast<std::int32_t>(tokens[b].size()) + 1;
      ASSERT_EQ(Extend(branches[b], end), Verdict::kNow);
      tokens[b].push_back(10'000 * (b + 1) + step);
    }
    manager_->FinishCopies();
    for (int b = 0; b < 2; ++b) {
      const auto end = static_cast<std::int32_t>(tokens[b].size());
      manager_->Commit(branches[b], tokens[b], end);
      manager_->SlideWindow(branches[b], end - 32);
      EXPECT_LE(branches[b]->table().size(), 3);
      EXPECT_LE(branches[b]->table().first_position(), end - 32);
    }
    ExpectSound({&parent, &fork});
  }
  EXPECT_EQ(manager_->stats().active, 6);
  manager_->Release(&parent);
  manager_->Release(&fork);
  EXPECT_EQ(manager_->stats().active, 0);
  ExpectSound({&parent, &fork});
  // A released sequence starts over at position 0.
  EXPECT_EQ(manager_->Admit(&parent, Range(5), {}), Verdict::kNow);
  EXPECT_EQ(parent.table().first_position(), 0);
}

TEST_F(BlockManagerTest, C16_AWindowedSequenceNeedsOnlyItsWindow) {
  Start(4);
  Tokens tokens = Range(20);
  SequenceBlocks sequence = Computed(tokens);
  while (tokens.size() < 200) {  // 13 blocks in all, in a pool of 4.
    ASSERT_EQ(Extend(&sequence, static_cast<std::int32_t>(tokens.size()) + 1), Verdict::kNow);
    tokens.push_back(static_cast<TokenId>(tokens.size()));
    manager_->Commit(&sequence, tokens, static_cast<std::int32_t>(tokens.size()));
    manager_->SlideWindow(&sequence, static_cast<std::int32_t>(tokens.size()) - 32);
    ExpectSound({&sequence});
  }
}

TEST_F(BlockManagerTest, ResetForgetsCachedContentAndSparesLiveOnes) {
  Start(8);
  { const SequenceBlocks gone = Computed(Range(32)); }
  const SequenceBlocks live = Computed(Range(32, 10'000));
  EXPECT_EQ(manager_->ResetPrefixCache(), 2);
  ExpectCounts(2, 0, 6);
  EXPECT_EQ(Hits(Range(33)), 0);
  EXPECT_EQ(Hits(Range(33, 10'000)), 32);
  EXPECT_EQ(manager_->ResetPrefixCache(), 0);
  ExpectSound({&live});
}

TEST_F(BlockManagerTest, AReleasedSequenceCanBeAdmittedAgainAndHitsItself) {
  Start(8);
  SequenceBlocks sequence = Computed(Range(40));
  manager_->Release(&sequence);
  EXPECT_EQ(sequence.num_computed_tokens(), 0);
  ASSERT_EQ(manager_->Admit(&sequence, Range(40), {}), Verdict::kNow);
  EXPECT_EQ(sequence.num_computed_tokens(), 32);
  manager_->Commit(&sequence, Range(40), 40);
  ExpectSound({&sequence});
}

TEST_F(BlockManagerTest, BlockInfosShowStatesAndOwners) {
  Start(4);
  { const SequenceBlocks gone = Computed(Range(32, 10'000)); }
  const SequenceBlocks sequence = Computed(Range(10));
  const SequenceBlocks fork = manager_->Fork(sequence);
  const std::vector<BlockManager::BlockInfo> infos = manager_->BlockInfos();
  ASSERT_EQ(infos.size(), 4u);
  EXPECT_EQ(infos[0].state, BlockState::kCached);
  EXPECT_EQ(infos[0].owners, 0);
  EXPECT_EQ(infos[2].state, BlockState::kActive);
  EXPECT_EQ(infos[2].owners, 2);
  EXPECT_EQ(infos[3].state, BlockState::kFree);
}

TEST_F(BlockManagerTest, AuditNoticesASequenceThatIsNotAccountedFor) {
  Start(4);
  const SequenceBlocks sequence = Computed(Range(10));
  EXPECT_THAT(std::string(AsStd(manager_->Audit({}).message())),
              HasSubstr("block 0 is in 0 tables but has 1 owners"));
}

TEST(BlockManagerOptions, C128_C135_ValidateNamesTheFlag) {
  const auto message = [](std::int64_t num_blocks, std::int32_t block_size) {
    const BlockManagerOptions options{.num_blocks = num_blocks, .block_size = block_size};
    return std::string(AsStd(options.Validate().message()));
  };
  EXPECT_EQ(message(1, 16), "");
  EXPECT_EQ(message(2, 1), "");
  EXPECT_EQ(message(8'388'607, 256), "");
  EXPECT_THAT(message(0, 16), HasSubstr("num-blocks must be in [1, 134217727]"));
  EXPECT_THAT(message(-1, 16), HasSubstr("got -1"));
  EXPECT_THAT(message(1, 1), HasSubstr("smallest request needs 2"));
  EXPECT_THAT(message(8'388'608, 256), HasSubstr("num-blocks"));
  for (const int size : {0, -16, 3, 17, 512}) {
    EXPECT_THAT(message(8, size), HasSubstr("block-size must be a power of two in [1, 256]"));
  }
}

TEST(BlockManagerOptions, ValidateNamesTheSessionFlags) {
  const auto message = [](double share, absl::Duration ttl) {
    const BlockManagerOptions options{.num_blocks = 8, .session_share = share, .session_ttl = ttl};
    return std::string(AsStd(options.Validate().message()));
  };
  EXPECT_EQ(message(0.0, absl::Seconds(1)), "");
  EXPECT_EQ(message(1.0, absl::InfiniteDuration()), "");
  EXPECT_EQ(message(-0.1, absl::Seconds(1)), "session-share must be in [0, 1], got -0.1");
  EXPECT_EQ(message(1.5, absl::Seconds(1)), "session-share must be in [0, 1], got 1.5");
  EXPECT_EQ(message(0.5, absl::ZeroDuration()), "session-ttl must be positive, got 0");
}

}  // namespace
}  // namespace quire::block_manager
