// The KV cache as an object: reserving, addressing, copying.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/paged_runner.h"

namespace quire::kernels {
namespace {

class KvCacheTest : public testing::TestWithParam<BackendCase> {};

INSTANTIATE_TEST_SUITE_P(Backends, KvCacheTest, testing::ValuesIn(AllBackends()),
                         testing::PrintToStringParamName());

TEST_P(KvCacheTest, SaysWhatItHolds) {
  const auto backend = GetParam().Make();
  const PagedSpec spec{.num_blocks = 7};
  const auto cache = backend->NewKvCache(spec.geometry(), 7);
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ((*cache)->num_blocks(), 7);
  EXPECT_EQ((*cache)->geometry().block_size, 16);
}

TEST_P(KvCacheTest, RefusesWhatCannotBe) {
  const auto backend = GetParam().Make();
  KvGeometry geometry = PagedSpec{}.geometry();
  EXPECT_EQ(backend->NewKvCache(geometry, -1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backend->NewKvCache(geometry, std::numeric_limits<std::int64_t>::max()).status().code(),
            absl::StatusCode::kResourceExhausted);
  geometry.block_size = 12;
  EXPECT_EQ(backend->NewKvCache(geometry, 4).status().code(), absl::StatusCode::kInvalidArgument);
}

// C118: offsets beyond 2^31 and block ids beyond 2^16. The pool is reserved, hardly any of it is
// ever touched.
TEST_P(KvCacheTest, C118_LargePoolsAreAddressedIn64Bits) {
  PagedSpec spec{.num_heads = 2, .num_kv_heads = 1};
  spec.num_layers = 2;
  const std::int64_t block_bytes = spec.geometry().layer_block_bytes();
  ASSERT_EQ(block_bytes, 8'192);
  spec.num_blocks = 800'000;  // 6.5 GB a layer
  const auto at_bytes = [&](std::int64_t bytes) { return static_cast<int>(bytes / block_bytes); };
  PagedRunner runner(GetParam().Make(), spec);
  PagedSequence low = MakeSequence(spec, 100, 4, 0);
  PagedSequence high = MakeSequence(spec, 100, 4, 0);
  high.blocks = {65'535,
                 65'536,
                 at_bytes((std::int64_t{1} << 31) - block_bytes),
                 at_bytes(std::int64_t{1} << 31),
                 at_bytes(std::int64_t{1} << 32),
                 799'998,
                 799'999};
  runner.Finish(low, 90);
  runner.Finish(high, 90);
  EXPECT_EQ(high.outputs, low.outputs);
  high.outputs.clear();
  runner.Step({{&high, 100}}, 1);
  EXPECT_EQ(high.outputs, low.outputs);
}

TEST_P(KvCacheTest, CopiesBlocksOfAllLayersInOrder) {
  PagedSpec spec{
      .num_heads = 2, .num_kv_heads = 2, .head_dim = 20, .block_size = 8, .k_dtype = KvDtype::kF16};
  spec.num_layers = 3;
  for (int layer = 0; layer < 3; ++layer) {
    PagedRunner runner(GetParam().Make(), spec);
    PagedSequence original = MakeSequence(spec, 24, 7, 0);
    runner.Step({{&original, 23}}, layer);
    PagedSequence copy = original;
    copy.blocks = {9, 1, 12};
    // 0 -> 5 -> 9, and 2 -> 12; block 1 stays shared.
    const std::vector<BlockCopy> copies = {{0, 5}, {5, 9}, {2, 12}};
    runner.backend().CopyBlocks(runner.cache(), copies);
    runner.Step({{&copy, 1}}, layer);
    runner.Step({{&original, 1}}, layer);
    EXPECT_EQ(copy.outputs, original.outputs);
  }
}

TEST_P(KvCacheTest, ACopyDoesNotShareItsSource) {
  const PagedSpec spec{.num_heads = 2, .num_kv_heads = 1};
  PagedRunner runner(GetParam().Make(), spec);
  PagedSequence a = MakeSequence(spec, 16, 1, 0);
  runner.Step({{&a, 10}});
  PagedSequence b = a;
  b.blocks = {3};
  runner.backend().CopyBlocks(runner.cache(), std::vector<BlockCopy>{{0, 3}});
  b.rows = RandomRows(spec, 16, 99);
  runner.Finish(b, 2);
  PagedSequence alone = MakeSequence(spec, 16, 1, 5);
  runner.Finish(alone, 16);
  runner.Finish(a, 6);
  EXPECT_EQ(a.outputs, alone.outputs);
  EXPECT_NE(b.outputs, alone.outputs);
}

}  // namespace
}  // namespace quire::kernels
