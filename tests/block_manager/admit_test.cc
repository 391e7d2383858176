// Admission beyond the plain case: windows, reservations, and the report of what was not cached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "tests/block_manager/block_manager_fixture.h"

namespace quire::block_manager {
namespace {

using testing::ElementsAre;

class AdmitTest : public BlockManagerFixture {
 protected:
  Verdict Admit(SequenceBlocks* sequence, const Tokens& tokens, const AdmitOptions& options) {
    return manager_->Admit(sequence, tokens, options, &report_);
  }
  PrefixReport ReportOf(const Tokens& tokens, std::string_view salt = "") {
    SequenceBlocks sequence = New(salt);
    EXPECT_EQ(Admit(&sequence, tokens, {}), Verdict::kNow);
    return report_;
  }
  // Computes and evicts more contents than are remembered.
  void PassManyContents() {
    for (int i = 0; i < 20'000; ++i) {
      const SequenceBlocks passing = Computed({-1 - i, -1 - i});
    }
  }
  PrefixReport report_;
};

TEST_F(AdmitTest, ReserveTakesBlocksForTokensToCome) {
  Start(8);
  SequenceBlocks sequence = New();
  ASSERT_EQ(Admit(&sequence, Range(20), {.reserve_tokens = 100}), Verdict::kNow);
  EXPECT_EQ(sequence.table().size(), 7);
  ExpectCounts(7, 0, 1);
  Tokens tokens = Range(20);
  manager_->Commit(&sequence, tokens, 20);
  EXPECT_EQ(manager_->stats().useful_slots, 20);
  EXPECT_EQ(Extend(&sequence, 100), Verdict::kNow);
  ExpectCounts(7, 0, 1);
  ExpectSound({&sequence});
  manager_->Release(&sequence);
  ExpectCounts(0, 1, 7);
  // A longer sequence than the reservation gets what it needs.
  ASSERT_EQ(Admit(&sequence, Range(40, 10'000), {.reserve_tokens = 10}), Verdict::kNow);
  EXPECT_EQ(sequence.table().size(), 3);
}

TEST_F(AdmitTest, AReservationThatDoesNotFitIsRefused) {
  Start(8);
  const SequenceBlocks other = Computed(Range(16, 10'000));
  SequenceBlocks sequence = New();
  EXPECT_EQ(Admit(&sequence, Range(20), {.reserve_tokens = 129}), Verdict::kNever);
  EXPECT_EQ(Admit(&sequence, Range(20), {.reserve_tokens = 128}), Verdict::kNotNow);
  EXPECT_EQ(Admit(&sequence, Range(20), {.reserve_tokens = 112}), Verdict::kNow);
}

TEST(SlidingWindow, ATokenSeesItselfAndTheOnesBefore) {
  EXPECT_EQ((SlidingWindow{.tokens = 0}).FirstSeen(100), 0);
  EXPECT_EQ((SlidingWindow{.tokens = 1}).FirstSeen(100), 100);
  EXPECT_EQ((SlidingWindow{.tokens = 32}).FirstSeen(100), 69);
  EXPECT_EQ((SlidingWindow{.tokens = 32}).FirstSeen(31), 0);
  EXPECT_EQ((SlidingWindow{.tokens = 32}).FirstSeen(32), 1);
}

TEST_F(AdmitTest, C16_AWindowNeedsTheBlocksOfOneStepAtMost) {
  Start(4);
  const auto need = [&](std::int64_t num_tokens, SlidingWindow window) {
    return manager_->BlocksForTokens(num_tokens, window);
  };
  EXPECT_EQ(need(200, {}), 13);
  // 31 positions behind, one to compute: 3 blocks when they begin inside one.
  EXPECT_EQ(need(200, {.tokens = 32, .max_chunk = 1}), 3);
  EXPECT_EQ(need(32, {.tokens = 32, .max_chunk = 1}), 2);
  EXPECT_EQ(need(200, {.tokens = 32, .max_chunk = 2}), 3);
  EXPECT_EQ(need(200, {.tokens = 32, .max_chunk = 3}), 4);
  EXPECT_EQ(need(200, {.tokens = 1, .max_chunk = 1}), 1);
  EXPECT_EQ(need(200, {.tokens = 1, .max_chunk = 16}), 2);
}

TEST_F(AdmitTest, C16_AdmissionAndAllocationAgreeOnTheWindow) {
  // 200 tokens, 13 blocks, in a pool of 4.
  Start(4);
  const Tokens tokens = Range(200);
  const SlidingWindow window{.tokens = 32, .max_chunk = 16};
  SequenceBlocks sequence = New();
  EXPECT_EQ(Admit(&sequence, tokens, {}), Verdict::kNever);
  EXPECT_EQ(Admit(&sequence, tokens, {.window = {.tokens = 32, .max_chunk = 19}}), Verdict::kNever);
  ASSERT_EQ(Admit(&sequence, tokens, {.window = window}), Verdict::kNow);
  ExpectCounts(4, 0, 0);
  int most = 0;
  for (std::int32_t begin = 0; begin < 200; begin += 16) {
    const std::int32_t end = std::min(begin + 16, 200);
    ASSERT_EQ(Extend(&sequence, end), Verdict::kNow) << begin;
    most = std::max(most, sequence.table().size());
    manager_->Commit(&sequence, tokens, end);
    manager_->SlideWindow(&sequence, window.FirstSeen(end));
    ExpectSound({&sequence});
  }
  EXPECT_EQ(most, 4);
  EXPECT_EQ(sequence.table().first_position(), 160);
}

TEST_F(AdmitTest, C16_AWindowedHitTakesOnlyTheBlocksItSees) {
  Start(16);
  { const SequenceBlocks warm = Computed(Range(160)); }
  SequenceBlocks sequence = New();
  const Tokens tokens = Concat(Range(160), Range(16, 10'000));
  const AdmitOptions options{.window = {.tokens = 33, .max_chunk = 16}};
  ASSERT_EQ(Admit(&sequence, tokens, options), Verdict::kNow);
  EXPECT_EQ(report_.hit, 160);
  EXPECT_EQ(sequence.num_computed_tokens(), 160);
  // The token at 160 sees 128 and what follows.
  EXPECT_EQ(sequence.table().first_position(), 128);
  EXPECT_THAT(Ids(sequence), ElementsAre(8, 9, 10));
  ExpectCounts(3, 8, 5);
  manager_->Commit(&sequence, tokens, 176);
  EXPECT_EQ(manager_->Match(New(), Concat(tokens, {1})).size(), 11u);
  ExpectSound({&sequence});

  // One more position, one more block.
  SequenceBlocks wider = New();
  ASSERT_EQ(Admit(&wider, tokens, {.window = {.tokens = 34, .max_chunk = 16}}), Verdict::kNow);
  EXPECT_EQ(wider.table().first_position(), 112);
  ExpectSound({&sequence, &wider});
}

TEST_F(AdmitTest, C16_HitsBehindTheWindowCostNothing) {
  Start(12);
  { const SequenceBlocks warm = Computed(Range(160)); }
  const SequenceBlocks other = Computed(Range(32, 20'000));
  ExpectCounts(2, 10, 0);
  // 2 hits and 1 new block; the 8 hits behind the window stay available.
  SequenceBlocks sequence = New();
  const Tokens tokens = Concat(Range(160), {1});
  const SlidingWindow window{.tokens = 33, .max_chunk = 1};
  EXPECT_EQ(Admit(&sequence, tokens, {.keep_available = 8, .window = window}), Verdict::kNotNow);
  EXPECT_EQ(Admit(&sequence, tokens, {.keep_available = 7, .window = window}), Verdict::kNow);
  ExpectCounts(5, 7, 0);
  ExpectSound({&sequence, &other});
}

TEST_F(AdmitTest, C16_AnEvictedAncestorBreaksTheChain) {
  Start(6);
  const SlidingWindow window{.tokens = 16, .max_chunk = 16};
  SequenceBlocks sequence = New();
  ASSERT_EQ(Admit(&sequence, Range(64), {.window = window}), Verdict::kNow);
  for (std::int32_t end = 16; end <= 64; end += 16) {
    ASSERT_EQ(Extend(&sequence, end), Verdict::kNow);
    manager_->Commit(&sequence, Range(64), end);
    manager_->SlideWindow(&sequence, window.FirstSeen(end));
  }
  // One block is held; the first of the three left behind goes.
  { const SequenceBlocks other = Computed(Range(48, 10'000)); }
  EXPECT_TRUE(manager_->Match(New(), Range(65)).empty());
  const PrefixReport report = ReportOf(Range(65));
  EXPECT_EQ(report.hit, 0);
  EXPECT_EQ(report.evicted, 64);
  // Computed again, the ancestor is another block: its old descendants are not its own.
  { const SequenceBlocks again = Computed(Range(16)); }
  EXPECT_EQ(manager_->Match(New(), Range(65)).size(), 1u);
  ExpectSound({&sequence});
}

TEST_F(AdmitTest, C16_ForksOfAWindowedHitShareAndCopyRight) {
  Start(16);
  { const SequenceBlocks warm = Computed(Range(64)); }
  const SlidingWindow window{.tokens = 20, .max_chunk = 8};
  SequenceBlocks parent = New();
  const Tokens prompt = Concat(Range(64), {1, 2, 3});
  ASSERT_EQ(Admit(&parent, prompt, {.window = window}), Verdict::kNow);
  EXPECT_EQ(parent.table().first_position(), 32);
  manager_->Commit(&parent, prompt, 67);
  manager_->SlideWindow(&parent, window.FirstSeen(67));
  EXPECT_EQ(parent.table().first_position(), 48);
  SequenceBlocks fork = manager_->Fork(parent);
  ASSERT_EQ(Extend(&fork, 68), Verdict::kNow);
  ASSERT_EQ(copies_.size(), 1u);
  EXPECT_EQ(copies_[0].source, parent.table()[1]);
  EXPECT_EQ(copies_[0].target, fork.table()[1]);
  EXPECT_EQ(fork.table()[0], parent.table()[0]);
  manager_->FinishCopies();
  ExpectSound({&parent, &fork});
}

TEST_F(AdmitTest, SaysWhyTokensMissed) {
  Start(8);
  const Tokens tokens = Range(70);
  EXPECT_EQ(ReportOf(tokens), (PrefixReport{.never_seen = 64, .partial_block = 6}));
  { const SequenceBlocks sequence = Computed(tokens); }
  EXPECT_EQ(ReportOf(tokens), (PrefixReport{.hit = 64, .partial_block = 6}));
  // Evicts the last two of the four cached blocks.
  { const SequenceBlocks other = Computed(Range(96, 10'000)); }
  EXPECT_EQ(ReportOf(tokens), (PrefixReport{.hit = 32, .evicted = 32, .partial_block = 6}));
  EXPECT_EQ(ReportOf(Concat(tokens, Range(26, 20'000))),
            (PrefixReport{.hit = 32, .never_seen = 16, .evicted = 32, .partial_block = 16}));
}

TEST_F(AdmitTest, OtherSaltsAreNamedApart) {
  Start(8);
  { const SequenceBlocks sequence = Computed(Range(33), "A"); }
  EXPECT_EQ(ReportOf(Range(49), "B"),
            (PrefixReport{.never_seen = 16, .other_salt = 32, .partial_block = 1}));
  EXPECT_EQ(ReportOf(Range(49)),
            (PrefixReport{.never_seen = 16, .other_salt = 32, .partial_block = 1}));
  manager_->ResetPrefixCache();
  EXPECT_EQ(ReportOf(Range(49), "A"),
            (PrefixReport{.never_seen = 16, .evicted = 32, .partial_block = 1}));
  EXPECT_EQ(ReportOf(Range(49), "B").other_salt, 32);
}

TEST_F(AdmitTest, WhatWasEvictedLongAgoCountsAsNeverSeen) {
  Start(8, 2);
  { const SequenceBlocks sequence = Computed({1, 2}); }
  PassManyContents();
  EXPECT_EQ(ReportOf({1, 2, 3}), (PrefixReport{.never_seen = 2, .partial_block = 1}));
}

TEST_F(AdmitTest, WhatWasComputedLongAgoIsRememberedWhenItIsEvicted) {
  Start(8, 2);
  {
    const SequenceBlocks long_lived = Computed({1, 2});
    PassManyContents();
  }
  { const SequenceBlocks all = Computed({3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}); }
  EXPECT_EQ(ReportOf({1, 2, 3}), (PrefixReport{.evicted = 2, .partial_block = 1}));
}

TEST_F(AdmitTest, WhatIsInUseUnderAnotherSaltIsRememberedHoweverOldItIs) {
  Start(8, 2);
  const SequenceBlocks long_lived = Computed({1, 2}, "A");
  PassManyContents();
  EXPECT_EQ(ReportOf({1, 2, 3}, "A").hit, 2);
  EXPECT_EQ(ReportOf({1, 2, 3}, "B"), (PrefixReport{.other_salt = 2, .partial_block = 1}));
}

TEST_F(AdmitTest, APromptThatIsWhollyCachedMissesOnlyItsLastBlock) {
  Start(8);
  { const SequenceBlocks sequence = Computed(Range(32)); }
  EXPECT_EQ(ReportOf(Range(32)), (PrefixReport{.hit = 16, .partial_block = 16}));
}

TEST_F(AdmitTest, BypassedTokensAreCountedAsSuch) {
  Start(8);
  { const SequenceBlocks sequence = Computed(Range(32)); }
  {
    SequenceBlocks bypass = New();
    ASSERT_EQ(Admit(&bypass, Range(40), {.use_prefix_cache = false}), Verdict::kNow);
    EXPECT_EQ(report_, PrefixReport{.bypassed = 40});
  }
  Start({.num_blocks = 8, .enable_prefix_caching = false});
  EXPECT_EQ(ReportOf(Range(40)), PrefixReport{.bypassed = 40});
}

TEST_F(AdmitTest, ARefusedAdmissionReportsNothing) {
  Start(4);
  const SequenceBlocks other = Computed(Range(48, 10'000));
  report_ = {.hit = -1};
  SequenceBlocks sequence = New();
  EXPECT_EQ(Admit(&sequence, Range(32), {}), Verdict::kNotNow);
  EXPECT_EQ(Admit(&sequence, Range(80), {}), Verdict::kNever);
  EXPECT_EQ(report_, PrefixReport{.hit = -1});
}

}  // namespace
}  // namespace quire::block_manager
