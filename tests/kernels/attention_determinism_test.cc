// The determinism contract of paged attention: the bits of an output row depend on its own query
// and keys only. Every comparison here is exact.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/paged_runner.h"

namespace quire::kernels {
namespace {

using Bits = std::vector<std::vector<std::uint32_t>>;

// Comparing bits, so that NaN and the sign of zero count.
Bits ToBits(const std::vector<std::vector<float>>& rows) {
  Bits bits;
  for (const auto& row : rows) {
    auto& out = bits.emplace_back();
    for (const float x : row) out.push_back(std::bit_cast<std::uint32_t>(x));
  }
  return bits;
}

// Where `actual` first differs, for messages short enough to read.
std::string FirstDifference(const Bits& actual, const Bits& expected) {
  if (actual.size() != expected.size()) return "number of rows";
  for (std::size_t r = 0; r < actual.size(); ++r) {
    for (std::size_t i = 0; i < actual[r].size(); ++i) {
      if (actual[r][i] == expected[r][i]) continue;
      return "row " + std::to_string(r) + " column " + std::to_string(i) + ": " +
             std::to_string(std::bit_cast<float>(actual[r][i])) + " instead of " +
             std::to_string(std::bit_cast<float>(expected[r][i]));
    }
  }
  return "";
}
#define EXPECT_SAME_BITS(actual, expected) \
  EXPECT_EQ(FirstDifference(ToBits((actual).outputs), ToBits((expected).outputs)), "")

// Layouts that take different ways through the kernels.
std::vector<PagedSpec> Layouts() {
  PagedSpec windowed{.num_heads = 3,
                     .num_kv_heads = 1,
                     .head_dim = 32,
                     .k_dtype = KvDtype::kF16,
                     .v_dtype = KvDtype::kF16};
  windowed.sliding_window = 70;
  return {
      {.num_heads = 9, .num_kv_heads = 3, .k_dtype = KvDtype::kF16, .v_dtype = KvDtype::kF16},
      {.num_heads = 6, .num_kv_heads = 2, .block_size = 32, .rotary_dim = 64},
      {.num_heads = 2,
       .num_kv_heads = 2,
       .head_dim = 80,
       .block_size = 64,
       .k_dtype = KvDtype::kBf16,
       .v_dtype = KvDtype::kBf16},
      {.num_heads = 4,
       .num_kv_heads = 1,
       .head_dim = 40,
       .block_size = 4,
       .k_dtype = KvDtype::kF16,
       .v_dtype = KvDtype::kF32,
       .num_blocks = 512},
      windowed,
  };
}

class AttentionDeterminismTest : public testing::TestWithParam<BackendCase> {
 protected:
  static PagedRunner Runner(const PagedSpec& spec) { return {GetParam().Make(), spec}; }

  // A sequence computed alone in one step, in a clean cache.
  static PagedSequence Alone(const PagedSpec& spec, int length, std::uint64_t seed) {
    PagedRunner runner = Runner(spec);
    PagedSequence sequence = MakeSequence(spec, length, seed, 0);
    runner.Finish(sequence, length);
    return sequence;
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, AttentionDeterminismTest, testing::ValuesIn(AllBackends()),
                         testing::PrintToStringParamName());

// C117: greedy text must not change with batch size or prefill chunks.
TEST_P(AttentionDeterminismTest, C117_ChunksDoNotMatter) {
  for (const PagedSpec& spec : Layouts()) {
    const PagedSequence alone = Alone(spec, 150, 1);
    for (const int chunk : {1, 7, 16, 64, 149}) {
      PagedRunner runner = Runner(spec);
      PagedSequence sequence = MakeSequence(spec, 150, 1, 0);
      runner.Finish(sequence, chunk);
      EXPECT_SAME_BITS(sequence, alone) << spec.head_dim << ' ' << chunk;
    }
  }
}

TEST_P(AttentionDeterminismTest, ChunksDoNotMatterAcrossSplits) {
  const PagedSpec spec{.num_heads = 3,
                       .num_kv_heads = 1,
                       .head_dim = 16,
                       .k_dtype = KvDtype::kF16,
                       .v_dtype = KvDtype::kF16};
  const PagedSequence alone = Alone(spec, 560, 2);
  for (const int chunk : {100, 400}) {
    PagedRunner runner = Runner(spec);
    PagedSequence sequence = MakeSequence(spec, 560, 2, 0);
    runner.Finish(sequence, chunk);
    EXPECT_SAME_BITS(sequence, alone) << chunk;
  }
  PagedRunner runner = Runner(spec);
  PagedSequence sequence = MakeSequence(spec, 560, 2, 0);
  runner.Step({{&sequence, 500}});
  runner.Finish(sequence, 1);
  EXPECT_SAME_BITS(sequence, alone);
}

TEST_P(AttentionDeterminismTest, C117_BatchMatesDoNotMatter) {
  for (const PagedSpec& layout : Layouts()) {
    PagedSpec spec = layout;
    spec.num_blocks = 64 * 128 / spec.block_size;
    const PagedSequence alone = Alone(spec, 70, 100);
    for (const int mates : {1, 3, 63}) {
      PagedRunner runner = Runner(spec);
      const int stride = 128 / spec.block_size;
      std::vector<PagedSequence> sequences;
      for (int i = 0; i <= mates; ++i) {
        // The one that is compared stands in the middle.
        const bool own = i == mates / 2;
        sequences.push_back(MakeSequence(spec, own ? 70 : 3 + i, own ? 100 : i, i * stride));
      }
      while (sequences[mates / 2].computed() < 70) {
        std::vector<PagedRunner::Chunk> chunks;
        for (int i = 0; i <= mates; ++i) {
          const int left = sequences[i].length() - sequences[i].computed();
          if (left > 0) chunks.push_back({&sequences[i], std::min(left, 1 + i % 40)});
        }
        runner.Step(chunks);
      }
      EXPECT_SAME_BITS(sequences[mates / 2], alone) << spec.head_dim << ' ' << mates;
    }
  }
}

// C126: one step that mixes prefills of 1, 7, 16, 33 tokens, a middle chunk and three decodes.
TEST_P(AttentionDeterminismTest, C126_MixedStepGivesEachItsOwnRows) {
  PagedSpec spec{
      .num_heads = 9, .num_kv_heads = 3, .k_dtype = KvDtype::kF16, .v_dtype = KvDtype::kF16};
  const std::vector<int> lengths = {1, 7, 16, 33, 60, 20, 41, 64};
  const std::vector<int> before = {0, 0, 0, 0, 20, 19, 40, 63};
  const std::vector<int> now = {1, 7, 16, 33, 20, 1, 1, 1};
  PagedRunner runner = Runner(spec);
  std::vector<PagedSequence> sequences;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    sequences.push_back(MakeSequence(spec, lengths[i], i, static_cast<int>(i) * 4));
    if (before[i] > 0) runner.Step({{&sequences[i], before[i]}});
  }
  std::vector<PagedRunner::Chunk> chunks;
  for (std::size_t i = 0; i < lengths.size(); ++i) chunks.push_back({&sequences[i], now[i]});
  runner.Step(chunks);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    PagedSequence alone = Alone(spec, lengths[i], i);
    alone.outputs.resize(sequences[i].outputs.size());
    EXPECT_SAME_BITS(sequences[i], alone) << i;
  }
}

TEST_P(AttentionDeterminismTest, BlockOrderDoesNotMatter) {
  for (const PagedSpec& spec : Layouts()) {
    const PagedSequence alone = Alone(spec, 130, 7);
    PagedRunner runner = Runner(spec);
    PagedSequence sequence = MakeSequence(spec, 130, 7, 0);
    for (std::size_t i = 0; i < sequence.blocks.size(); ++i) {
      // 37 and num_blocks (a power of two) have no common divisor.
      sequence.blocks[i] = static_cast<int>((i * 37 + 11) % spec.num_blocks);
    }
    runner.Step({{&sequence, 65}});
    runner.Finish(sequence, 1);
    EXPECT_SAME_BITS(sequence, alone) << spec.head_dim;
  }
}

TEST_P(AttentionDeterminismTest, PoisonedSlackAndForeignBlocksAreNeverUsed) {
  for (const PagedSpec& spec : Layouts()) {
    for (const int length : {1, 15, 17, 63, 66, 131}) {
      const PagedSequence clean = Alone(spec, length, 3);
      PagedRunner runner = Runner(spec);
      runner.Poison();
      PagedSequence sequence = MakeSequence(spec, length, 3, 0);
      runner.Finish(sequence, 20);
      EXPECT_SAME_BITS(sequence, clean) << spec.head_dim << ' ' << length;
    }
  }
}

// A token whose K and V are not numbers must not reach the rows before it, which do not see it.
TEST_P(AttentionDeterminismTest, LaterNanTokensDoNotReachEarlierRows) {
  for (const PagedSpec& spec : Layouts()) {
    PagedSequence clean = Alone(spec, 50, 8);
    PagedRunner runner = Runner(spec);
    PagedSequence sequence = MakeSequence(spec, 50, 8, 0);
    std::fill(sequence.rows[41].begin(), sequence.rows[41].end(),
              std::numeric_limits<float>::quiet_NaN());
    runner.Finish(sequence, 50);
    EXPECT_TRUE(std::isnan(sequence.outputs[41][0]));
    EXPECT_TRUE(std::isnan(sequence.outputs[49][0]));
    sequence.outputs.resize(41);
    clean.outputs.resize(41);
    EXPECT_SAME_BITS(sequence, clean) << spec.head_dim;
  }
}

TEST_P(AttentionDeterminismTest, FreedBlocksLeftOfTheWindowAreNotRead) {
  PagedSpec spec = Layouts().back();
  ASSERT_EQ(spec.sliding_window, 70);
  const PagedSequence full = Alone(spec, 200, 6);
  PagedRunner runner = Runner(spec);
  PagedSequence sequence = MakeSequence(spec, 200, 6, 0);
  runner.Step({{&sequence, 160}});
  // The query at 160 sees keys from 91 on: the blocks of 0..79 may go.
  sequence.blocks.erase(sequence.blocks.begin(), sequence.blocks.begin() + 5);
  sequence.first_position = 80;
  runner.Finish(sequence, 9);
  EXPECT_SAME_BITS(sequence, full);
}

// C125: rows that only pad a batch must not write or read a real slot; here there are none, and
// block 0 belongs to a sequence that sits out the step.
TEST_P(AttentionDeterminismTest, C125_ASteppedBatchLeavesBlockZeroAlone) {
  PagedSpec spec{.num_heads = 3, .num_kv_heads = 1, .num_blocks = 16};
  const PagedSequence alone = Alone(spec, 17, 1);
  PagedRunner runner = Runner(spec);
  PagedSequence owner = MakeSequence(spec, 17, 1, 0);
  runner.Step({{&owner, 16}});
  PagedSequence a = MakeSequence(spec, 5, 2, 4);
  PagedSequence b = MakeSequence(spec, 33, 3, 6);
  PagedSequence c = MakeSequence(spec, 1, 4, 10);
  runner.Step({{&a, 5}, {&b, 33}, {&c, 1}});
  runner.Step({{&owner, 1}});
  EXPECT_SAME_BITS(owner, alone);
}

// Threads, and the two levels of the CPU backend: they run the same operations in the same order.
TEST(AttentionDeterminism, ThreadsDoNotMatter) {
  for (const PagedSpec& layout : Layouts()) {
    for (const int length : {70, 600}) {
      PagedSpec spec = layout;
      spec.num_blocks = 1'024;
      std::vector<PagedSequence> results;
      for (const BackendCase& backend : AllBackends()) {
        if (backend.isa.empty()) continue;
        for (const int threads : {1, 2, 3}) {
          PagedRunner runner(BackendCase{backend.isa, threads}.Make(), spec);
          PagedSequence long_one = MakeSequence(spec, length, 1, 0);
          PagedSequence short_one = MakeSequence(spec, 20, 2, 900);
          runner.Step({{&short_one, 3}, {&long_one, length - 5}});
          for (int i = 0; i < 5; ++i) runner.Step({{&long_one, 1}, {&short_one, 2}});
          results.push_back(long_one);
        }
      }
      for (const PagedSequence& result : results) EXPECT_SAME_BITS(result, results[0]);
    }
  }
}

}  // namespace
}  // namespace quire::kernels
