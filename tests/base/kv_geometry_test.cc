#include "base/kv_geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace quire {
namespace {

KvGeometry Geometry(int layers, int kv_heads, int head_dim, KvDtype dtype = KvDtype::kF16) {
  return {.num_layers = layers,
          .num_kv_heads = kv_heads,
          .k_dim = head_dim,
          .v_dim = head_dim,
          .block_size = 16,
          .k_dtype = dtype,
          .v_dtype = dtype};
}

constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;

// bytes = 2 * layers * kv_heads * head_dim * bytes_per_element * tokens * batch, for published
// models.
TEST(KvGeometry, BytesOfPublishedModels) {
  const KvGeometry llama2_7b = Geometry(32, 32, 128);
  EXPECT_EQ(llama2_7b.bytes_per_token(), 524'288);
  EXPECT_EQ(llama2_7b.bytes_per_token() * 4096, 2 * kGiB);
  EXPECT_EQ(llama2_7b.bytes_per_token() * 4096 * 32, 64 * kGiB);

  const KvGeometry llama3_8b = Geometry(32, 8, 128);
  EXPECT_EQ(llama3_8b.bytes_per_token(), 131'072);
  EXPECT_EQ(llama3_8b.bytes_per_token() * 4096, 512 * kMiB);
  EXPECT_EQ(llama3_8b.bytes_per_token() * 32'768, 4 * kGiB);

  const KvGeometry gpt3_175b = Geometry(96, 96, 128);  // Hidden size 12288.
  EXPECT_EQ(gpt3_175b.bytes_per_token() * 100, 471'859'200);

  EXPECT_EQ(Geometry(30, 3, 64, KvDtype::kBf16).bytes_per_token(), 23'040);  // SmolLM2-135M
}

// Pope et al. 2022: a 500B+ multi-head model (118 layers, 48 heads of 128, bf16) at batch 512 and
// context 2048 needs about 3 TB, three times its weights.
TEST(KvGeometry, BytesOfALargeMultiHeadModel) {
  const KvGeometry palm_sized = Geometry(118, 48, 128, KvDtype::kBf16);
  EXPECT_NEAR(static_cast<double>(palm_sized.bytes_per_token()) * 512 * 2048, 3e12, 0.1e12);
}

TEST(KvGeometry, KeysAndValuesMayDiffer) {
  KvGeometry geometry = Geometry(2, 3, 64);
  geometry.v_dim = 32;
  geometry.k_dtype = KvDtype::kF32;
  EXPECT_EQ(geometry.bytes_per_token(), 2 * 3 * (64 * 4 + 32 * 2));
}

TEST(KvGeometry, BlocksAndLayersAddUp) {
  const KvGeometry geometry = Geometry(30, 3, 64);
  EXPECT_EQ(geometry.bytes_per_block(), 16 * 23'040);
  EXPECT_EQ(geometry.layer_block_bytes() * 30, geometry.bytes_per_block());
}

TEST(KvGeometry, BlocksForTokensRoundsUp) {
  const KvGeometry geometry = Geometry(1, 1, 8);
  for (const auto& [tokens, blocks] : {std::pair{0, 0}, {1, 1}, {15, 1}, {16, 1}, {17, 2}}) {
    EXPECT_EQ(geometry.blocks_for_tokens(tokens), blocks) << tokens;
  }
}

TEST(KvGeometry, ValidateNamesTheField) {
  EXPECT_TRUE(Geometry(30, 3, 64).Validate().ok());
  const auto message = [](KvGeometry geometry) {
    return std::string(AsStd(geometry.Validate().message()));
  };
  KvGeometry bad = Geometry(0, 3, 64);
  EXPECT_THAT(message(bad), testing::HasSubstr("num_layers must be in [1, 10000], got 0"));
  bad = Geometry(30, -1, 64);
  EXPECT_THAT(message(bad), testing::HasSubstr("num_kv_heads"));
  bad = Geometry(30, 3, 65'537);
  EXPECT_THAT(message(bad), testing::HasSubstr("k_dim"));
  bad = Geometry(30, 3, 64);
  bad.v_dim = 0;
  EXPECT_THAT(message(bad), testing::HasSubstr("v_dim"));
}

TEST(KvGeometry, C135_BlockSizeIsAPowerOfTwoUpTo256) {
  for (int size = -1; size <= 300; ++size) {
    KvGeometry geometry = Geometry(1, 1, 8);
    geometry.block_size = size;
    const bool valid = size == 1 || size == 2 || size == 4 || size == 8 || size == 16 ||
                       size == 32 || size == 64 || size == 128 || size == 256;
    EXPECT_EQ(geometry.Validate().ok(), valid) << size;
  }
}

TEST(KvDtype, NamesAndSizes) {
  EXPECT_EQ(KvDtypeName(KvDtype::kF32), "f32");
  EXPECT_EQ(KvDtypeName(KvDtype::kF16), "f16");
  EXPECT_EQ(KvDtypeName(KvDtype::kBf16), "bf16");
  EXPECT_EQ(KvElementBytes(KvDtype::kF32), 4);
  EXPECT_EQ(KvElementBytes(KvDtype::kF16), 2);
  EXPECT_EQ(KvElementBytes(KvDtype::kBf16), 2);
}

}  // namespace
}  // namespace quire
