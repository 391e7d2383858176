#include "engine/step_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A middle chunk of five tokens (positions 4..6) and a decode (position 3), as a scheduler plans
// them.
class StepBatchTest : public ::testing::Test {
 protected:
  const std::vector<TokenId> decode_tokens_ = {10, 11, 12, 13};
  const std::vector<BlockId> decode_blocks_ = {BlockId(8)};
  const std::vector<TokenId> prompt_ = {20, 21, 22, 23, 24, 25, 26, 27, 28};
  const std::vector<BlockId> prompt_blocks_ = {BlockId(3), BlockId(5)};
  const scheduler::ScheduledSequence decode_ = {.id = SequenceId(1),
                                                .first_token = 3,
                                                .num_tokens = 1,
                                                .samples = true,
                                                .tokens = decode_tokens_,
                                                .block_table = decode_blocks_};
  const scheduler::ScheduledSequence chunk_ = {.id = SequenceId(2),
                                               .first_token = 4,
                                               .num_tokens = 3,
                                               .first_position = 0,
                                               .tokens = prompt_,
                                               .block_table = prompt_blocks_};
};

TEST_F(StepBatchTest, IsEmptyAtFirst) {
  StepBatch batch;
  const kernels::BatchView view = batch.View();
  EXPECT_EQ(view.num_tokens(), 0);
  EXPECT_EQ(view.num_sequences(), 0);
  EXPECT_THAT(view.q_indptr, ElementsAre(0));
  EXPECT_THAT(view.block_indptr, ElementsAre(0));
}

TEST_F(StepBatchTest, FlattensSequencesEndToEnd) {
  StepBatch batch;
  EXPECT_EQ(batch.AddSequence(decode_), 0);
  EXPECT_EQ(batch.AddSequence(chunk_), 1);
  const kernels::BatchView view = batch.View();
  EXPECT_THAT(view.token_ids, ElementsAre(13, 24, 25, 26));
  EXPECT_THAT(view.positions, ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(view.q_indptr, ElementsAre(0, 1, 4));
  EXPECT_THAT(view.kv_lens, ElementsAre(4, 7));
  EXPECT_THAT(view.block_indptr, ElementsAre(0, 1, 3));
  EXPECT_THAT(view.block_ids, ElementsAre(8, 3, 5));
  EXPECT_THAT(view.first_position, ElementsAre(0, 0));
  EXPECT_THAT(view.logits_rows, IsEmpty());
}

TEST_F(StepBatchTest, SeveralSampleRowsMayShareALogitsRow) {
  StepBatch batch;
  const std::int32_t row = batch.AddSequence(decode_);
  batch.AddSampleRow(row, {.temperature = 1, .uniform = 0.25});
  batch.AddSampleRow(row, {.temperature = 1, .uniform = 0.75});
  const std::int32_t chunk_row = batch.AddSequence(chunk_);
  batch.AddSampleRow(chunk_row + 1, {.forced_token = 26});
  EXPECT_THAT(batch.View().logits_rows, ElementsAre(0, 0, 2));
  ASSERT_THAT(batch.sample_rows(), SizeIs(3));
  EXPECT_EQ(batch.sample_rows()[1].uniform, 0.75);
  EXPECT_EQ(batch.sample_rows()[2].forced_token, 26);
}

TEST_F(StepBatchTest, PassesCopiesOn) {
  StepBatch batch;
  batch.AddCopies(std::vector<scheduler::BlockCopyOrder>{
      {.source = BlockId(3), .target = BlockId(9)}, {.source = BlockId(1), .target = BlockId(2)}});
  const kernels::BatchView view = batch.View();
  ASSERT_THAT(view.copies, SizeIs(2));
  EXPECT_EQ(view.copies[0].source, 3);
  EXPECT_EQ(view.copies[0].target, 9);
  EXPECT_EQ(view.copies[1].target, 2);
}

TEST_F(StepBatchTest, ClearLeavesNothingOfTheStepBefore) {
  StepBatch batch;
  batch.AddCopies(std::vector<scheduler::BlockCopyOrder>{{BlockId(3), BlockId(9)}});
  batch.AddSampleRow(batch.AddSequence(decode_), {});
  batch.ResetResults()[0].ok = true;
  batch.Clear();
  EXPECT_EQ(batch.View().num_tokens(), 0);
  EXPECT_EQ(batch.View().num_sequences(), 0);
  EXPECT_THAT(batch.View().block_ids, IsEmpty());
  EXPECT_THAT(batch.View().copies, IsEmpty());
  EXPECT_THAT(batch.View().logits_rows, IsEmpty());
  EXPECT_EQ(batch.AddSequence(chunk_), 0);
  batch.AddSampleRow(2, {});
  EXPECT_THAT(batch.ResetResults(), SizeIs(1));
  EXPECT_FALSE(batch.results()[0].ok) << "a result of the step before would count as this one's";
}

}  // namespace
}  // namespace quire::engine
