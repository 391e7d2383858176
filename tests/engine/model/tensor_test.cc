// Element types against values worked out by hand or by a second formula.
#include "engine/model/tensor.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/file_writers.h"

namespace quire::engine::model {
namespace {

using fakes::Bytes;
using Encoding = kernels::MatrixSource::Encoding;

class TensorTest : public testing::Test {
 protected:
  StoredTensor Store(TensorType type, std::vector<std::int64_t> shape, const std::string& bytes) {
    const std::string path = folder_.File("tensor");
    fakes::WriteFile(path, "head" + bytes);
    return {.name = "t",
            .type = type,
            .shape = std::move(shape),
            .file = *File::Open(path),
            .offset = 4,
            .bytes = std::ssize(bytes)};
  }
  std::vector<float> Row(const kernels::MatrixSource& matrix, std::int64_t row) {
    std::vector<float> values(static_cast<std::size_t>(matrix.cols()));
    matrix.ReadRow(row, values);
    return values;
  }

  fakes::TempFolder folder_;
};

std::string U16s(std::initializer_list<std::uint16_t> values) {
  std::string bytes;
  for (const std::uint16_t value : values) bytes += Bytes(value);
  return bytes;
}

TEST_F(TensorTest, C81_F32KeepsEveryBit) {
  const std::vector<float> values = {1.5F, -0.0F, std::numeric_limits<float>::denorm_min(),
                                     std::numeric_limits<float>::infinity()};
  const auto read = ReadVector(Store(TensorType::kF32, {4}, fakes::EncodeTensor("F32", values)));
  ASSERT_TRUE(read.ok());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>((*read)[i]), std::bit_cast<std::uint32_t>(values[i]));
  }
}

TEST_F(TensorTest, C81_F16IsConvertedExactly) {
  // Known values of IEEE 754 binary16: 1, -2, the largest, the smallest normal, the smallest
  // subnormal, 1/3 rounded, infinity, minus zero.
  const auto matrix =
      ReadMatrix(Store(TensorType::kF16, {2, 4},
                       U16s({0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001, 0x3555, 0x7C00, 0x8000})));
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ((*matrix)->encoding(), Encoding::kFloat);
  EXPECT_THAT(Row(**matrix, 0), testing::ElementsAre(1.0F, -2.0F, 65504.0F, 0x1p-14F));
  const auto second = Row(**matrix, 1);
  EXPECT_THAT(second, testing::ElementsAre(0x1p-24F, 0.333251953125F,
                                           std::numeric_limits<float>::infinity(), -0.0F));
  EXPECT_TRUE(std::signbit(second[3]));
}

TEST_F(TensorTest, C81_Bf16IsConvertedExactly) {
  const auto read =
      ReadVector(Store(TensorType::kBf16, {4}, U16s({0x3F80, 0xC040, 0x0001, 0x7F80})));
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(*read, testing::ElementsAre(1.0F, -3.0F, std::bit_cast<float>(0x00010000U),
                                          std::numeric_limits<float>::infinity()));
}

TEST_F(TensorTest, Q8GroupsAreScaleTimesCode) {
  std::string bytes;
  for (const std::uint16_t scale : {std::uint16_t{0x3800}, std::uint16_t{0xC000}}) {  // 0.5, -2
    bytes += Bytes(scale);
    for (int i = 0; i < 32; ++i) bytes += Bytes(static_cast<std::int8_t>(i == 0 ? -128 : 4 * i));
  }
  const auto matrix = ReadMatrix(Store(TensorType::kQ8_0, {1, 64}, bytes));
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ((*matrix)->encoding(), Encoding::kInt8Group32);
  const auto row = Row(**matrix, 0);
  EXPECT_EQ(row[0], -64.0F);
  EXPECT_EQ(row[31], 62.0F);
  EXPECT_EQ(row[32], 256.0F);
  EXPECT_EQ(row[33], -8.0F);
  std::vector<std::int8_t> codes(64);
  std::vector<float> scales(2), offsets(2);
  (*matrix)->ReadGroups(0, codes, scales, offsets);
  EXPECT_EQ(codes[0], -128);
  EXPECT_EQ(codes[63], 124);
  EXPECT_THAT(scales, testing::ElementsAre(0.5F, -2.0F));
  EXPECT_THAT(offsets, testing::ElementsAre(0.0F, 0.0F));
}

// Byte i holds value i in its low nibble and value i + 16 in its high one.
std::string Nibbles() {
  std::string bytes;
  for (int i = 0; i < 16; ++i) bytes += static_cast<char>(i | (15 - i) << 4);
  return bytes;
}

TEST_F(TensorTest, Q4GroupsWithoutMinimumAreCentredOnEight) {
  const auto matrix =
      ReadMatrix(Store(TensorType::kQ4_0, {1, 32}, Bytes<std::uint16_t>(0x3800) + Nibbles()));
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ((*matrix)->encoding(), Encoding::kInt4Group32);
  const auto row = Row(**matrix, 0);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(row[static_cast<std::size_t>(i)], 0.5F * static_cast<float>(i - 8));
    EXPECT_EQ(row[static_cast<std::size_t>(i + 16)], 0.5F * static_cast<float>(7 - i));
  }
}

TEST_F(TensorTest, Q4GroupsWithMinimumAddIt) {
  const auto matrix = ReadMatrix(Store(TensorType::kQ4_1, {2, 32},
                                       U16s({0x3800, 0xC200}) + Nibbles() +  // 0.5, -3
                                           U16s({0x2E66, 0x3555}) + Nibbles()));
  ASSERT_TRUE(matrix.ok());
  const auto row = Row(**matrix, 0);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(row[static_cast<std::size_t>(i)], 0.5F * static_cast<float>(i) - 3);
    EXPECT_EQ(row[static_cast<std::size_t>(i + 16)], 0.5F * static_cast<float>(15 - i) - 3);
  }
  // Groups and row say the same, also where the sum rounds.
  std::vector<std::int8_t> codes(32);
  std::vector<float> scales(1), offsets(1);
  (*matrix)->ReadGroups(1, codes, scales, offsets);
  EXPECT_EQ(scales[0], 0.0999755859375F);
  EXPECT_EQ(offsets[0], 0.333251953125F);
  const auto second = Row(**matrix, 1);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(second[i], scales[0] * static_cast<float>(codes[i]) + offsets[0]);
  }
}

TEST_F(TensorTest, C76_FileThatShrinksAfterOpeningIsAnError) {
  const StoredTensor tensor = Store(TensorType::kF32, {64, 32}, std::string(64 * 32 * 4, 'x'));
  fakes::WriteFile(tensor.file->path(), "short");
  const auto matrix = ReadMatrix(tensor);
  EXPECT_EQ(matrix.status().code(), absl::StatusCode::kDataLoss) << matrix.status();
  EXPECT_THAT(std::string(matrix.status().message()), testing::HasSubstr("changed"));
}

TEST_F(TensorTest, C76_MatrixOutlivesItsFile) {
  StoredTensor tensor = Store(TensorType::kF32, {1, 1}, Bytes(2.5F));
  const auto matrix = ReadMatrix(tensor);
  ASSERT_TRUE(matrix.ok());
  fakes::WriteFile(tensor.file->path(), "");
  tensor = {};
  EXPECT_THAT(Row(**matrix, 0), testing::ElementsAre(2.5F));
}

TEST_F(TensorTest, OpenRefusesWhatIsNotAFile) {
  EXPECT_EQ(File::Open(folder_.File("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(File::Open(folder_.path()).status().message()),
              testing::HasSubstr("not a regular file"));
  EXPECT_THAT(std::string(File::Open("/dev/null").status().message()),
              testing::HasSubstr("not a regular file"));
}

TEST(CheckedElements, StopsBeforeOverflow) {
  const auto count = [](std::vector<std::int64_t> shape) { return CheckedElements(shape); };
  EXPECT_EQ(count({3, 4}), 12);
  EXPECT_EQ(count({}), 1);
  EXPECT_EQ(count({std::int64_t{1} << 31, std::int64_t{1} << 31}), std::int64_t{1} << 62);
  EXPECT_EQ(count({std::int64_t{1} << 32, std::int64_t{1} << 31}), std::nullopt);
  EXPECT_EQ(count({4, 0}), std::nullopt);
  EXPECT_EQ(count({4, -1}), std::nullopt);
}

}  // namespace
}  // namespace quire::engine::model
