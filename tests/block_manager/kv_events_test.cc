// What subscribers are told of the prefix cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/block_manager/block_manager_fixture.h"

namespace quire::block_manager {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = KvEvent::Kind;

class KvEventsTest : public BlockManagerFixture {
 protected:
  void StartRecording(std::int64_t num_blocks) {
    Start(num_blocks);
    manager_->RecordEvents(true);
  }
  std::vector<KvEvent> Take() {
    std::vector<KvEvent> events;
    manager_->TakeEvents(&events);
    return events;
  }
  std::vector<KvEvent> Snapshot() const {
    std::vector<KvEvent> events;
    manager_->SnapshotEvents(&events);
    return events;
  }
};

TEST_F(KvEventsTest, StoredBlocksNameTheirParentAndTokens) {
  StartRecording(8);
  const SequenceBlocks sequence = Computed(Range(40));
  const std::vector<KvEvent> events = Take();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].kind, Kind::kStored);
  EXPECT_EQ(events[0].parent_hash, std::nullopt);
  EXPECT_THAT(events[0].tokens, ElementsAreArray(Range(16)));
  EXPECT_FALSE(events[0].salted);
  EXPECT_EQ(events[1].kind, Kind::kStored);
  EXPECT_EQ(events[1].parent_hash, events[0].block_hash);
  EXPECT_NE(events[1].block_hash, events[0].block_hash);
  EXPECT_THAT(events[1].tokens, ElementsAreArray(Range(16, 16)));
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(KvEventsTest, OnlyWhatChangesIsTold) {
  StartRecording(8);
  { const SequenceBlocks sequence = Computed(Range(40)); }
  Take();
  { const SequenceBlocks again = Computed(Range(40)); }  // Hits two blocks.
  SequenceBlocks bypass = New();
  ASSERT_EQ(manager_->Admit(&bypass, Range(32), {.use_prefix_cache = false}), Verdict::kNow);
  manager_->Commit(&bypass, Range(32), 32);  // Computes two anew, and adopts the others.
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(KvEventsTest, EvictedBlocksAreRemovedTailFirstUnderTheirNames) {
  StartRecording(4);
  { const SequenceBlocks sequence = Computed(Range(48)); }
  const std::vector<KvEvent> stored = Take();
  ASSERT_THAT(stored, SizeIs(3));
  SequenceBlocks other = New();
  ASSERT_EQ(manager_->Admit(&other, Range(48, 10'000), {}), Verdict::kNow);
  const std::vector<KvEvent> removed = Take();
  ASSERT_THAT(removed, SizeIs(2));
  EXPECT_EQ(removed[0], (KvEvent{.kind = Kind::kRemoved, .block_hash = stored[2].block_hash}));
  EXPECT_EQ(removed[1], (KvEvent{.kind = Kind::kRemoved, .block_hash = stored[1].block_hash}));
}

TEST_F(KvEventsTest, AContentThatReturnsHasANewName) {
  StartRecording(2);
  { const SequenceBlocks sequence = Computed(Range(16)); }
  { const SequenceBlocks other = Computed(Range(32, 10'000)); }
  { const SequenceBlocks sequence = Computed(Range(16)); }
  const std::vector<KvEvent> events = Take();
  std::vector<std::uint64_t> names;
  for (const KvEvent& event : events) {
    if (event.kind == Kind::kStored) names.push_back(event.block_hash);
  }
  ASSERT_THAT(names, SizeIs(4));
  EXPECT_NE(names.front(), names.back());
  EXPECT_THAT(events.front().tokens, ElementsAreArray(Range(16)));
  EXPECT_THAT(events.back().tokens, ElementsAreArray(Range(16)));
}

TEST_F(KvEventsTest, C18_TokensUnderASaltAreNotTold) {
  StartRecording(8);
  { const SequenceBlocks sequence = Computed(Range(32), "secret"); }
  std::vector<KvEvent> events = Take();
  ASSERT_THAT(events, SizeIs(2));
  for (const KvEvent& event : Snapshot()) events.push_back(event);
  ASSERT_THAT(events, SizeIs(4));
  for (const KvEvent& event : events) {
    EXPECT_TRUE(event.salted);
    EXPECT_THAT(event.tokens, IsEmpty());
  }
  EXPECT_EQ(events[1].parent_hash, events[0].block_hash);
  const SequenceBlocks other = Computed(Range(128, 10'000));
  events = Take();
  ASSERT_THAT(events, SizeIs(10));
  EXPECT_EQ(events[0].kind, Kind::kRemoved);
  EXPECT_TRUE(events[0].salted);
}

TEST_F(KvEventsTest, AResetOfAllIsOneEvent) {
  StartRecording(8);
  { const SequenceBlocks sequence = Computed(Range(48)); }
  Take();
  manager_->ResetPrefixCache();
  EXPECT_THAT(Take(), ElementsAreArray({KvEvent{.kind = Kind::kCleared}}));
  manager_->ResetPrefixCache();
  EXPECT_THAT(Take(), IsEmpty());
  // Recording went on.
  { const SequenceBlocks sequence = Computed(Range(16)); }
  EXPECT_THAT(Take(), SizeIs(1));
}

TEST_F(KvEventsTest, AResetThatSparesLiveBlocksRemovesTheOthers) {
  StartRecording(8);
  const SequenceBlocks live = Computed(Range(16));
  { const SequenceBlocks longer = Computed(Range(32)); }
  const std::vector<KvEvent> stored = Take();
  ASSERT_THAT(stored, SizeIs(2));
  manager_->ResetPrefixCache();
  EXPECT_THAT(Take(), ElementsAreArray(
                          {KvEvent{.kind = Kind::kRemoved, .block_hash = stored[1].block_hash}}));
  ASSERT_THAT(Snapshot(), SizeIs(1));
  EXPECT_EQ(Snapshot()[0], stored[0]);
}

TEST_F(KvEventsTest, ASnapshotTellsWhatWasStoredParentsFirst) {
  Start(16);
  // Blocks freed one by one, in the order of their ids, are handed out the other way round.
  std::vector<SequenceBlocks> singles;
  for (int i = 0; i < 16; ++i) {
    singles.push_back(New());
    ASSERT_EQ(manager_->Admit(&singles.back(), Range(1), {}), Verdict::kNow);
  }
  for (SequenceBlocks& single : singles) manager_->Release(&single);
  manager_->RecordEvents(true);
  {
    const SequenceBlocks sequence = Computed(Range(64));
    EXPECT_THAT(Ids(sequence), testing::ElementsAre(15, 14, 13, 12));
  }
  { const SequenceBlocks branch = Computed(Concat(Range(32), Range(32, 20'000))); }
  const std::vector<KvEvent> events = Take(), snapshot = Snapshot();
  ASSERT_THAT(events, SizeIs(6));
  EXPECT_THAT(snapshot, testing::UnorderedElementsAreArray(events));
  std::vector<std::uint64_t> told;
  for (const KvEvent& event : snapshot) {
    if (event.parent_hash.has_value()) {
      EXPECT_THAT(told, testing::Contains(*event.parent_hash));
    }
    told.push_back(event.block_hash);
  }
}

TEST_F(KvEventsTest, NothingIsNotedUnlessAskedFor) {
  Start(8);
  { const SequenceBlocks sequence = Computed(Range(48)); }
  manager_->ResetPrefixCache();
  EXPECT_THAT(Take(), IsEmpty());
  manager_->RecordEvents(true);
  { const SequenceBlocks sequence = Computed(Range(48)); }
  manager_->RecordEvents(false);  // Forgets what was not taken.
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_THAT(Snapshot(), SizeIs(3));
}

}  // namespace
}  // namespace quire::block_manager
