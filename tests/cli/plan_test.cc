#include "cli/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace quire::cli {
namespace {

KvGeometry GeometryOf(const std::string& name, KvDtype dtype = KvDtype::kF16) {
  for (const Architecture& known : Architectures()) {
    if (known.name != name) continue;
    return {.num_layers = known.num_layers,
            .num_kv_heads = known.num_kv_heads,
            .k_dim = known.head_dim,
            .v_dim = known.head_dim,
            .block_size = 16,
            .k_dtype = dtype,
            .v_dtype = dtype};
  }
  ADD_FAILURE() << "no architecture " << name;
  return {};
}

double ParametersOf(const std::string& name) {
  for (const Architecture& known : Architectures()) {
    if (known.name == name) return known.num_parameters;
  }
  return 0;
}

// The sizes that papers and vendors state for these models.
TEST(PlanKv, ReproducesPublishedSizes) {
  struct Row {
    const char* model;
    KvDtype dtype;
    std::int64_t tokens, batch, bytes;
  };
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  for (const Row& row : {
           Row{"llama-2-7b", KvDtype::kF16, 1, 1, 524'288},
           Row{"llama-2-7b", KvDtype::kF16, 4096, 1, 2 * kGiB},
           Row{"llama-2-7b", KvDtype::kF16, 4096, 32, 64 * kGiB},
           Row{"llama-3-8b", KvDtype::kF16, 1, 1, 131'072},
           Row{"llama-3-8b", KvDtype::kF16, 4096, 1, 536'870'912},
           Row{"llama-3-8b", KvDtype::kF16, 32768, 1, 4 * kGiB},
           Row{"gpt-3-175b", KvDtype::kF16, 100, 1, 471'859'200},
           Row{"smollm2-135m", KvDtype::kBf16, 1, 1, 23'040},
       }) {
    const auto plan = PlanKv(GeometryOf(row.model, row.dtype), row.tokens, row.batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->total_bytes, row.bytes) << row.model << " " << row.tokens << " " << row.batch;
  }
}

TEST(PlanKv, ReproducesTheRatiosToWeights) {
  // LLaMA-2-7B at batch 32: about 5 times its 13.4 GB of weights.
  const auto llama = PlanKv(GeometryOf("llama-2-7b"), 4096, 32);
  EXPECT_NEAR(static_cast<double>(llama->total_bytes) / (2 * ParametersOf("llama-2-7b")), 5, 0.2);
  // Pope et al. 2022: a 500B+ multi-head model at batch 512, context 2048: 3 TB, 3 times its
  // weights.
  const auto palm = PlanKv(GeometryOf("palm-540b-mha"), 2048, 512);
  EXPECT_NEAR(static_cast<double>(palm->total_bytes), 3e12, 0.05e12);
  EXPECT_NEAR(static_cast<double>(palm->total_bytes) / (2 * ParametersOf("palm-540b-mha")), 3, 0.2);
}

TEST(PlanKv, CountsWholeBlocksPerSequence) {
  const auto plan = PlanKv(GeometryOf("smollm2-135m"), 17, 3);
  EXPECT_EQ(plan->bytes_per_block, 16 * 23'040);
  EXPECT_EQ(plan->blocks_per_sequence, 2);
  EXPECT_EQ(plan->num_blocks, 6);
  EXPECT_EQ(plan->total_bytes, 17 * 3 * 23'040);
  EXPECT_EQ(plan->pool_bytes, 6 * 16 * 23'040);
}

TEST(PlanKv, RefusesWhatIsNotANumberOfBytes) {
  EXPECT_FALSE(PlanKv(GeometryOf("llama-2-7b"), 0, 1).ok());
  EXPECT_FALSE(PlanKv(GeometryOf("llama-2-7b"), 1, 0).ok());
  EXPECT_FALSE(PlanKv(GeometryOf("llama-2-7b"), std::int64_t{1} << 40, std::int64_t{1} << 40).ok());
  KvGeometry odd = GeometryOf("llama-2-7b");
  odd.block_size = 17;
  EXPECT_FALSE(PlanKv(odd, 1, 1).ok());
}

}  // namespace
}  // namespace quire::cli
