// What rotary embedding, KV write and paged attention compute, for every backend and level.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/rope.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/paged_runner.h"

namespace quire::kernels {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

// Bound of kernels that accumulate in f32 against the double oracle, K and V rounded alike.
constexpr double kMaxError = 2e-6;

class AttentionTest : public testing::TestWithParam<BackendCase> {
 protected:
  static PagedRunner Runner(const PagedSpec& spec) { return {GetParam().Make(), spec}; }

  // One prefill, then decode one by one.
  static double Error(const PagedSpec& spec, int length, int decoded = 3) {
    PagedRunner runner = Runner(spec);
    PagedSequence sequence = MakeSequence(spec, length, 42, 1, 2);
    const int prefill = std::max(1, length - decoded);
    runner.Step({{&sequence, prefill}});
    runner.Finish(sequence, 1);
    return RelativeError(sequence.outputs, ExpectedOutputs(spec, runner.rope(), sequence));
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, AttentionTest, testing::ValuesIn(AllBackends()),
                         testing::PrintToStringParamName());

TEST_P(AttentionTest, MatchesTheOracleAtLengthsAroundEveryBorder) {
  for (const int length : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200}) {
    EXPECT_LE(Error({.num_heads = 6, .num_kv_heads = 2}, length), kMaxError) << length;
  }
}

TEST_P(AttentionTest, MatchesTheOracleAcrossSplits) {
  for (const int length : {511, 512, 513, 1'030}) {
    const PagedSpec spec{.num_heads = 3, .num_kv_heads = 1, .head_dim = 32, .num_blocks = 200};
    EXPECT_LE(Error(spec, length, 2), kMaxError) << length;
  }
}

TEST_P(AttentionTest, MatchesTheOracleForEveryBlockSize) {
  for (const int block_size : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    for (const int length : {block_size, block_size + 1, 70}) {
      PagedSpec spec{.head_dim = 32, .block_size = block_size};
      spec.num_blocks = 2 * (length / block_size + 2);
      EXPECT_LE(Error(spec, length), kMaxError) << block_size << ' ' << length;
    }
  }
}

TEST_P(AttentionTest, MatchesTheOracleForEveryHeadDim) {
  for (const int head_dim : {2, 8, 16, 20, 33, 48, 64, 80, 96, 112, 128, 192, 256}) {
    EXPECT_LE(Error({.num_heads = 2, .num_kv_heads = 1, .head_dim = head_dim}, 70), kMaxError)
        << head_dim;
  }
}

TEST_P(AttentionTest, MatchesTheOracleForEveryElementType) {
  for (const KvDtype k_dtype : {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16}) {
    for (const KvDtype v_dtype : {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16}) {
      for (const int block_size : {4, 16, 32}) {
        for (const int heads : {1, 3, 9}) {
          const PagedSpec spec{.num_heads = heads,
                               .num_kv_heads = 1,
                               .block_size = block_size,
                               .k_dtype = k_dtype,
                               .v_dtype = v_dtype};
          EXPECT_LE(Error(spec, 75, 5), kMaxError)
              << KvDtypeName(k_dtype) << ' ' << KvDtypeName(v_dtype) << ' ' << block_size;
        }
      }
    }
  }
}

TEST_P(AttentionTest, MatchesTheOracleForEveryGroupSize) {
  for (const int heads : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 64}) {
    EXPECT_LE(Error({.num_heads = heads, .num_kv_heads = 1, .head_dim = 16}, 80), kMaxError)
        << heads;
  }
}

TEST_P(AttentionTest, MatchesTheOracleWithSlidingWindows) {
  for (const int window : {1, 2, 5, 16, 63, 64, 65, 100, 300}) {
    PagedSpec spec{.num_heads = 3, .num_kv_heads = 1, .head_dim = 32};
    spec.sliding_window = window;
    EXPECT_LE(Error(spec, 200, 40), kMaxError) << window;
  }
}

TEST_P(AttentionTest, MatchesTheOracleWithRotation) {
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves}) {
    for (const int rotary_dim : {2, 24, 48}) {
      const PagedSpec spec{.head_dim = 48, .rotary_dim = rotary_dim, .style = style};
      EXPECT_LE(Error(spec, 90), kMaxError) << rotary_dim;
    }
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const PagedSpec spec{.num_heads = 2, .num_kv_heads = 1, .head_dim = 32};
  PagedRunner runner = Runner(spec);
  PagedSequence sequence = MakeSequence(spec, 150, 3, 0);
  // Scores up to a few hundred: the running maximum rises by many steps.
  for (int p = 0; p < sequence.length(); ++p) {
    for (float& x : sequence.rows[p]) x *= 2 + 0.02F * static_cast<float>(p);
  }
  runner.Finish(sequence, 150);
  EXPECT_LE(RelativeError(sequence.outputs, ExpectedOutputs(spec, runner.rope(), sequence)), 5e-5);
}

TEST_P(AttentionTest, ConstantValuesGiveThatConstant) {
  const PagedSpec spec{.num_heads = 4, .num_kv_heads = 2};
  PagedRunner runner = Runner(spec);
  PagedSequence sequence = MakeSequence(spec, 140, 5, 0);
  for (auto& row : sequence.rows) std::fill(row.end() - 2 * 64, row.end(), 1.0F);
  runner.Finish(sequence, 33);
  for (const auto& row : sequence.outputs) {
    for (const float x : row) ASSERT_THAT(x, FloatNear(1.0F, 1e-6F));
  }
}

// The reference page on KV caching, section 3: one layer, one head, two dimensions.
TEST_P(AttentionTest, WorkedExampleOfKvCaching) {
  for (const int block_size : {1, 2, 16}) {
    const PagedSpec spec{.num_heads = 1,
                         .num_kv_heads = 1,
                         .head_dim = 2,
                         .block_size = block_size,
                         .num_blocks = 8};
    PagedRunner runner = Runner(spec);
    PagedSequence sequence;
    // Rows are q, k, v of the tokens A, B (prefill), C, D (decode).
    sequence.rows = {
        {0, 0, 2, 0, 2, 1}, {0, 0, 0, 2, 0, 1}, {2, 1, 1, 1, 1, 2}, {1, 1, 1, 1, 1, 0}};
    sequence.blocks = {5, 2, 7, 3};
    runner.Step({{&sequence, 2}});
    runner.Step({{&sequence, 1}});
    runner.Step({{&sequence, 1}});
    EXPECT_THAT(sequence.outputs[2],
                ElementsAre(FloatNear(1.436F, 5e-4F), FloatNear(1.284F, 5e-4F)));
    EXPECT_THAT(sequence.outputs[3], ElementsAre(FloatNear(1.0F, 1e-6F), FloatNear(1.0F, 1e-6F)));
  }
}

// C119: a window of W is W keys, the query's own included.
TEST_P(AttentionTest, C119_WindowCountsTheQueryItself) {
  for (const int block_size : {1, 4, 16}) {
    for (const int chunk : {1, 3, 41}) {
      PagedSpec spec{.num_heads = 1, .num_kv_heads = 1, .block_size = block_size};
      spec.sliding_window = 4;
      PagedRunner runner = Runner(spec);
      PagedSequence sequence = MakeSequence(spec, 41, 1, 0);
      for (int p = 0; p < 41; ++p) {  // Queries 0: all keys weigh the same. Values are one-hot.
        std::fill(sequence.rows[p].begin(), sequence.rows[p].begin() + 64, 0.0F);
        std::fill(sequence.rows[p].end() - 64, sequence.rows[p].end(), 0.0F);
        sequence.rows[p][128 + p] = 1;
      }
      runner.Finish(sequence, chunk);
      for (const int p : {2, 3, 4, 5, 40}) {
        const int visible = std::min(p + 1, 4);
        for (int key = 0; key < 41; ++key) {
          const bool seen = key <= p && key > p - 4;
          ASSERT_FLOAT_EQ(sequence.outputs[p][key], seen ? 1.0F / static_cast<float>(visible) : 0)
              << block_size << ' ' << chunk << ' ' << p << ' ' << key;
        }
      }
    }
  }
}

// C122: query head h reads KV head h / (heads / kv_heads).
TEST_P(AttentionTest, C122_QueryHeadsAreGroupedNotTiled) {
  const std::vector<std::pair<int, int>> ratios = {{4, 4}, {4, 2}, {6, 2}, {28, 4}, {8, 1}, {9, 3}};
  for (const auto& [heads, kv_heads] : ratios) {
    const PagedSpec spec{.num_heads = heads, .num_kv_heads = kv_heads, .head_dim = 16};
    PagedRunner runner = Runner(spec);
    PagedSequence sequence = MakeSequence(spec, 40, 9, 0);
    for (auto& row : sequence.rows) {
      for (int i = 0; i < kv_heads * 16; ++i) {
        row[(heads + kv_heads) * 16 + i] = static_cast<float>(i / 16);
      }
    }
    runner.Step({{&sequence, 37}});
    runner.Finish(sequence, 1);
    for (const auto& row : sequence.outputs) {
      for (int h = 0; h < heads; ++h) {
        const auto expected = static_cast<float>(h / (heads / kv_heads));
        ASSERT_THAT(row[h * 16], FloatNear(expected, 1e-5F)) << heads << '/' << kv_heads;
      }
    }
  }
}

TEST_P(AttentionTest, RotatesQueriesInPlace) {
  const PagedSpec spec{.num_heads = 2, .num_kv_heads = 1, .head_dim = 6, .rotary_dim = 4};
  const RopeTable interleaved =
      MakeRopeTable(RopeStyle::kInterleaved, RopeInverseFrequencies(100, 4), 8);
  RopeTable halves = interleaved;
  halves.style = RopeStyle::kHalves;
  const auto backend = GetParam().Make();
  const auto cache = *backend->NewKvCache(spec.geometry(), 4);
  const std::vector<TokenId> tokens = {0};
  const std::vector<std::int32_t> position = {7};
  const std::vector<std::int32_t> indptr = {0, 1};
  const std::vector<std::int32_t> zero = {0};
  const std::vector<std::int32_t> length = {8};
  BatchView batch;
  batch.token_ids = tokens;
  batch.positions = position;
  batch.q_indptr = indptr;
  batch.kv_lens = length;
  batch.block_indptr = indptr;
  batch.block_ids = zero;
  batch.first_position = zero;
  const auto rotate = [&](const RopeTable& rope) {
    std::vector<float> qkv(24);
    for (int i = 0; i < 24; ++i) qkv[i] = static_cast<float>(i % 6 + 1);
    backend->RopeAndWriteKv(rope, spec.shape(), batch, 0, {qkv.data(), 1, 24, 24}, *cache);
    EXPECT_TRUE(std::equal(qkv.begin(), qkv.begin() + 6, qkv.begin() + 6));
    return std::vector<float>(qkv.begin(), qkv.begin() + 6);
  };
  const float c0 = std::cos(7.0F);
  const float s0 = std::sin(7.0F);
  const float c1 = std::cos(0.7F);
  const float s1 = std::sin(0.7F);
  const auto near = [](float x) { return FloatNear(x, 2e-6F); };
  EXPECT_THAT(rotate(interleaved), ElementsAre(near(1 * c0 - 2 * s0), near(2 * c0 + 1 * s0),
                                               near(3 * c1 - 4 * s1), near(4 * c1 + 3 * s1), 5, 6));
  EXPECT_THAT(rotate(halves), ElementsAre(near(1 * c0 - 3 * s0), near(2 * c1 - 4 * s1),
                                          near(3 * c0 + 1 * s0), near(4 * c1 + 2 * s1), 5, 6));
}

}  // namespace
}  // namespace quire::kernels
