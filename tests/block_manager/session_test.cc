// Sessions: what a lease keeps, when it gives way, and what it costs others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/block_manager/block_manager_fixture.h"

namespace quire::block_manager {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

class SessionTest : public BlockManagerFixture {
 protected:
  static SessionKey Key(std::string id, std::string_view salt = "") {
    return {std::move(id), CacheSalt::ForRequest(salt)};
  }
  static absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }
  // Computes `tokens` and leases them.
  void Turn(const std::string& id, const Tokens& tokens, int seconds = 0,
            std::string_view salt = "") {
    SequenceBlocks sequence = Computed(tokens, salt);
    manager_->Lease(Key(id, salt), &sequence, tokens, At(seconds));
    EXPECT_TRUE(sequence.table().empty());
    EXPECT_EQ(sequence.num_computed_tokens(), 0);
    ExpectSound({&sequence});
  }
  void ExpectLeased(std::int64_t leased, std::int64_t sessions) {
    EXPECT_EQ(manager_->stats().leased, leased);
    EXPECT_EQ(manager_->stats().sessions, sessions);
    ExpectSound();
  }
  std::size_t NumFound(const Tokens& tokens, std::string_view salt = "") {
    return manager_->Match(New(salt), Concat(tokens, {9'999'999})).size();
  }
};

TEST_F(SessionTest, ALeasedTurnIsCachedAndTheNextOneComputesNewTokensAlone) {
  Start(16);
  const Tokens turn = Range(40);
  Turn("chat", turn);
  ExpectCounts(0, 2, 14);
  ExpectLeased(2, 1);

  const SessionKey key = Key("chat");
  SequenceBlocks next = New();
  PrefixReport report;
  ASSERT_EQ(manager_->Admit(&next, Concat(turn, Range(9, 10'000)), {.session = &key}, &report),
            Verdict::kNow);
  EXPECT_EQ(next.num_computed_tokens(), 32);
  EXPECT_EQ(report.hit, 32);
  EXPECT_EQ(report.hit_leased, 32);
  // What is used is Active; the lease stays.
  ExpectCounts(4, 0, 12);
  EXPECT_EQ(manager_->stats().leased, 0);
  EXPECT_EQ(manager_->stats().sessions, 1);
  manager_->Release(&next);
  ExpectLeased(2, 1);
}

TEST_F(SessionTest, HitsAreTheSessionsOwnOnlyAsFarAsItLeasedThem) {
  Start(16);
  Turn("one", Range(32));
  { const SequenceBlocks longer = Computed(Range(64)); }
  const SessionKey one = Key("one"), two = Key("two");
  const auto leased_hits = [&](const SessionKey* key) {
    SequenceBlocks sequence = New();
    PrefixReport report;
    EXPECT_EQ(manager_->Admit(&sequence, Range(65), {.session = key}, &report), Verdict::kNow);
    EXPECT_EQ(report.hit, 64);
    return report.hit_leased;
  };
  EXPECT_EQ(leased_hits(&one), 32);
  EXPECT_EQ(leased_hits(&two), 0);
  EXPECT_EQ(leased_hits(nullptr), 0);
}

TEST_F(SessionTest, KeepsAllTokensOfTheTurnWithThoseNoBlockIsIndexedFor) {
  Start(16);
  EXPECT_EQ(manager_->SessionTokens(Key("chat")), std::nullopt);
  Turn("chat", Range(40));
  ASSERT_TRUE(manager_->SessionTokens(Key("chat")).has_value());
  EXPECT_THAT(*manager_->SessionTokens(Key("chat")), ElementsAreArray(Range(40)));
  EXPECT_EQ(manager_->SessionTokens(Key("other")), std::nullopt);

  // The last token of a turn was sampled, not computed.
  SequenceBlocks sequence = Computed(Range(50));
  manager_->Lease(Key("chat"), &sequence, Range(51), At(1));
  EXPECT_THAT(*manager_->SessionTokens(Key("chat")), ElementsAreArray(Range(51)));
  ExpectLeased(3, 1);
}

TEST_F(SessionTest, LeasedBlocksAreEvictedLast) {
  Start(8);
  Turn("old", Range(32));
  for (int i = 1; i <= 5; ++i) {
    const SequenceBlocks other = Computed(Range(96, 10'000 * i));
  }
  EXPECT_EQ(NumFound(Range(32)), 2u);
  ExpectLeased(2, 1);
  EXPECT_EQ(manager_->stats().evictions, 24);
  EXPECT_EQ(manager_->stats().evictions_leased, 0);
}

TEST_F(SessionTest, WithNothingElseLeftTheOldestLeaseEndsAndItsTailGoesFirst) {
  Start(8);
  Turn("old", Range(32), 0);
  Turn("new", Range(32, 10'000), 1);
  // 4 are free; the fifth block is the old lease's tail.
  SequenceBlocks large = New();
  ASSERT_EQ(manager_->Admit(&large, Range(80, 20'000), {}), Verdict::kNow);
  EXPECT_EQ(NumFound(Range(32)), 1u);
  EXPECT_EQ(NumFound(Range(32, 10'000)), 2u);
  EXPECT_EQ(manager_->SessionTokens(Key("old")), std::nullopt);
  EXPECT_TRUE(manager_->SessionTokens(Key("new")).has_value());
  EXPECT_EQ(manager_->stats().leases_displaced, 1);
  EXPECT_EQ(manager_->stats().evictions, 1);
  EXPECT_EQ(manager_->stats().evictions_leased, 1);
  EXPECT_EQ(manager_->stats().leased, 2);

  // What is left of the old lease was a session's, too, until somebody uses it.
  SequenceBlocks more = New();
  ASSERT_EQ(manager_->Admit(&more, Range(16, 30'000), {}), Verdict::kNow);
  EXPECT_EQ(manager_->stats().evictions_leased, 2);
  SequenceBlocks yet_more = New();
  ASSERT_EQ(manager_->Admit(&yet_more, Range(16, 40'000), {}), Verdict::kNow);
  EXPECT_EQ(manager_->stats().leases_displaced, 2);
  EXPECT_EQ(manager_->stats().evictions_leased, 3);
  EXPECT_EQ(manager_->stats().leased, 0);
  ExpectSound({&large, &more, &yet_more});
}

TEST_F(SessionTest, ALeaseWithoutBlocksMakesNoRoomAndStays) {
  Start(8);
  Turn("short", Range(5), 0);
  Turn("long", Range(32, 10'000), 1);
  const SequenceBlocks all = Computed(Range(128, 20'000));
  EXPECT_TRUE(manager_->SessionTokens(Key("short")).has_value());
  EXPECT_EQ(manager_->SessionTokens(Key("long")), std::nullopt);
  EXPECT_EQ(manager_->stats().leases_displaced, 1);
  ExpectSound({&all});
}

TEST_F(SessionTest, LeasesAreAvailableToAll) {
  Start(4);
  Turn("chat", Range(32));
  EXPECT_EQ(manager_->num_available(), 4);
  const SequenceBlocks all = Computed(Range(64, 10'000));
  ExpectCounts(4, 0, 0);
  EXPECT_EQ(manager_->stats().sessions, 0);
  EXPECT_EQ(manager_->stats().evictions_leased, 2);
}

TEST_F(SessionTest, AnEvictedContentThatWasUsedAgainCountsAsAnOrdinaryOne) {
  Start(4);
  Turn("chat", Range(32));
  { const SequenceBlocks other = Computed(Range(48, 10'000)); }  // Ends the lease, evicts its tail.
  EXPECT_EQ(manager_->stats().evictions_leased, 1);
  EXPECT_EQ(NumFound(Range(16)), 1u);
  EXPECT_EQ(Hits(Concat(Range(16), {7})), 16);  // The head is used.
  { const SequenceBlocks other = Computed(Range(64, 20'000)); }
  EXPECT_EQ(NumFound(Range(16)), 0u);
  EXPECT_EQ(manager_->stats().evictions_leased, 1);
}

TEST_F(SessionTest, ANewTurnReplacesTheFormerLease) {
  Start(16);
  Turn("chat", Range(48));
  Turn("chat", Concat(Range(32), Range(48, 10'000)));
  ExpectLeased(5, 1);
  ExpectCounts(0, 6, 10);
  EXPECT_EQ(manager_->stats().leases_displaced, 0);
  // Another conversation under the same name leases nothing of the former.
  Turn("chat", Range(16, 20'000));
  ExpectLeased(1, 1);
}

TEST_F(SessionTest, ABlockOfTwoLeasesStaysLeasedUntilBothEnd) {
  Start(16);
  Turn("one", Range(32));
  Turn("two", Concat(Range(16), Range(16, 10'000)));
  ExpectLeased(3, 2);
  EXPECT_TRUE(manager_->EndSession(Key("one")));
  ExpectLeased(2, 1);
  EXPECT_FALSE(manager_->EndSession(Key("one")));
  EXPECT_TRUE(manager_->EndSession(Key("two")));
  ExpectLeased(0, 0);
  ExpectCounts(0, 3, 13);
}

TEST_F(SessionTest, TheOldestLeaseGivesWayToNewerOnes) {
  Start({.num_blocks = 16, .session_share = 0.25});
  Turn("one", Range(32), 0);
  Turn("two", Range(32, 10'000), 1);
  ExpectLeased(4, 2);
  Turn("one", Range(32), 2);  // Now the younger one.
  Turn("three", Range(16, 20'000), 3);
  ExpectLeased(3, 2);
  EXPECT_EQ(manager_->SessionTokens(Key("two")), std::nullopt);
  EXPECT_TRUE(manager_->SessionTokens(Key("one")).has_value());
  EXPECT_EQ(manager_->stats().leases_displaced, 1);
  EXPECT_EQ(NumFound(Range(32, 10'000)), 2u);  // Given way, not dropped.
}

TEST_F(SessionTest, SharedBlocksCountOnceAgainstTheShare) {
  Start({.num_blocks = 16, .session_share = 0.25});
  for (int i = 0; i < 2; ++i) {
    Turn(std::to_string(i), Concat(Range(32), Range(16, 10'000 * (i + 1))), i);
  }
  ExpectLeased(4, 2);
  EXPECT_EQ(manager_->stats().leases_displaced, 0);
}

TEST_F(SessionTest, ALeaseLargerThanTheShareKeepsTheHeadThatFits) {
  Start({.num_blocks = 8, .session_share = 0.25});
  Turn("small", Range(16, 10'000), 0);
  Turn("large", Range(64), 1);
  ExpectLeased(2, 1);
  EXPECT_EQ(manager_->SessionTokens(Key("small")), std::nullopt);
  EXPECT_EQ(manager_->SessionTokens(Key("large"))->size(), 64u);
  { const SequenceBlocks other = Computed(Range(96, 20'000)); }
  EXPECT_EQ(NumFound(Range(64)), 2u);
}

TEST_F(SessionTest, TokensThatSessionsKeepAreBounded) {
  // Sessions of one text share its two blocks but keep 40 tokens each; 4 * 8 * 16 fit.
  Start({.num_blocks = 8, .session_share = 1.0});
  for (int i = 0; i < 30; ++i) Turn(std::to_string(i), Range(40), i);
  ExpectLeased(2, 12);
  EXPECT_EQ(manager_->stats().leases_displaced, 18);
  EXPECT_EQ(manager_->SessionTokens(Key("17")), std::nullopt);
  EXPECT_TRUE(manager_->SessionTokens(Key("18")).has_value());
}

TEST_F(SessionTest, ExpiresAfterItsTimeToLive) {
  Start({.num_blocks = 16, .session_ttl = absl::Seconds(60)});
  EXPECT_EQ(manager_->next_lease_expiry(), absl::InfiniteFuture());
  Turn("one", Range(32), 0);
  Turn("two", Range(32, 10'000), 30);
  EXPECT_EQ(manager_->next_lease_expiry(), At(60));
  manager_->ExpireLeases(At(59));
  ExpectLeased(4, 2);
  manager_->ExpireLeases(At(60));
  ExpectLeased(2, 1);
  EXPECT_EQ(manager_->SessionTokens(Key("one")), std::nullopt);
  EXPECT_EQ(manager_->stats().leases_expired, 1);
  EXPECT_EQ(manager_->next_lease_expiry(), At(90));
  // Its blocks are still found, but go like any others.
  EXPECT_EQ(NumFound(Range(32)), 2u);
  { const SequenceBlocks other = Computed(Range(14 * 16, 20'000)); }
  EXPECT_EQ(NumFound(Range(32)), 0u);
  EXPECT_EQ(NumFound(Range(32, 10'000)), 2u);
}

TEST_F(SessionTest, ATurnInTimeRenewsTheLease) {
  Start({.num_blocks = 16, .session_ttl = absl::Seconds(60)});
  Turn("chat", Range(32), 0);
  Turn("chat", Range(32), 50);
  manager_->ExpireLeases(At(109));
  ExpectLeased(2, 1);
  manager_->ExpireLeases(At(110));
  ExpectLeased(0, 0);
}

TEST_F(SessionTest, C18_SessionsOfDifferentSaltsHaveNothingInCommon) {
  Start(16);
  Turn("chat", Range(32), 0, "A");
  EXPECT_EQ(manager_->SessionTokens(Key("chat", "B")), std::nullopt);
  EXPECT_EQ(manager_->SessionTokens(Key("chat")), std::nullopt);
  EXPECT_FALSE(manager_->EndSession(Key("chat", "B")));
  Turn("chat", Range(48), 1, "B");
  ExpectLeased(5, 2);  // Replaced nothing of A's, shared nothing with it.
  EXPECT_EQ(manager_->SessionTokens(Key("chat", "A"))->size(), 32u);
  EXPECT_EQ(NumFound(Range(48), "A"), 2u);
  EXPECT_EQ(NumFound(Range(48), "B"), 3u);
  EXPECT_TRUE(manager_->EndSession(Key("chat", "A")));
  ExpectLeased(3, 1);
}

TEST_F(SessionTest, WithoutAShareALeaseIsARelease) {
  Start({.num_blocks = 8, .session_share = 0.0});
  Turn("chat", Range(32));
  ExpectLeased(0, 0);
  ExpectCounts(0, 2, 6);
  EXPECT_EQ(manager_->SessionTokens(Key("chat")), std::nullopt);
}

TEST_F(SessionTest, WithoutPrefixCachingTheTokensAreStillKept) {
  Start({.num_blocks = 8, .enable_prefix_caching = false});
  Turn("chat", Range(32));
  ExpectLeased(0, 1);
  ExpectCounts(0, 0, 8);
  EXPECT_THAT(*manager_->SessionTokens(Key("chat")), ElementsAreArray(Range(32)));
}

TEST_F(SessionTest, ResetEndsLeases) {
  Start(8);
  Turn("chat", Range(32));
  const SequenceBlocks live = Computed(Range(16, 10'000));
  EXPECT_EQ(manager_->ResetPrefixCache(), 2);
  ExpectCounts(1, 0, 7);
  EXPECT_EQ(manager_->stats().sessions, 0);
  EXPECT_EQ(manager_->stats().dropped_by_reset, 2);
  EXPECT_EQ(manager_->stats().evictions, 0);
  ExpectSound({&live});
}

TEST_F(SessionTest, EndedLeasesAreEvictedTailFirst) {
  Start(4);
  Turn("chat", Range(48));
  manager_->EndSession(Key("chat"));
  const SequenceBlocks other = Computed(Range(32, 10'000));
  EXPECT_EQ(NumFound(Range(48)), 2u);
}

TEST_F(SessionTest, BlockInfosShowLeases) {
  Start(4);
  Turn("chat", Range(32));
  { const SequenceBlocks other = Computed(Range(16, 10'000)); }
  std::vector<bool> leased;
  for (const BlockManager::BlockInfo& info : manager_->BlockInfos()) leased.push_back(info.leased);
  EXPECT_THAT(leased, ElementsAre(true, true, false, false));
}

TEST_F(SessionTest, AWindowedTurnLeasesItsWholeChainOrNothing) {
  const SlidingWindow window{.tokens = 16, .max_chunk = 16};
  const auto turn = [&] {
    SequenceBlocks sequence = New();
    EXPECT_EQ(manager_->Admit(&sequence, Range(64), {.window = window}), Verdict::kNow);
    for (std::int32_t end = sequence.num_computed_tokens() + 16; end <= 64; end += 16) {
      EXPECT_EQ(Extend(&sequence, end), Verdict::kNow);
      manager_->Commit(&sequence, Range(64), end);
      manager_->SlideWindow(&sequence, window.FirstSeen(end));
    }
    return sequence;
  };
  Start(8);
  {
    SequenceBlocks whole = turn();
    manager_->Lease(Key("whole"), &whole, Range(64), At(0));
    ExpectLeased(4, 1);
  }

  Start(8);
  SequenceBlocks broken = turn();
  // Evicts the first block, which the window has left behind.
  EXPECT_EQ(broken.table().first_position(), 48);
  { const SequenceBlocks other = Computed(Range(80, 10'000)); }
  EXPECT_EQ(NumFound(Range(64)), 0u);
  manager_->Lease(Key("broken"), &broken, Range(64), At(0));
  ExpectLeased(0, 1);
  EXPECT_EQ(manager_->SessionTokens(Key("broken"))->size(), 64u);
}

}  // namespace
}  // namespace quire::block_manager
