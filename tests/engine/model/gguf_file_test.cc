// Crafted GGUF files: what lies is refused with the name of the key or tensor, and memory stays
// small.
#include "engine/model/gguf_file.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/file_writers.h"

namespace quire::engine::model {
namespace {

using fakes::Bytes;
using fakes::GgufWriter;
using testing::AllOf;
using testing::HasSubstr;

class GgufFileTest : public testing::Test {
 protected:
  absl::StatusOr<GgufFile> Parse(const std::string& content) {
    fakes::WriteFile(path_, content);
    auto file = File::Open(path_);
    EXPECT_TRUE(file.ok()) << file.status();
    return GgufFile::Parse(*file);
  }
  std::string Error(const std::string& content) {
    const auto parsed = Parse(content);
    EXPECT_FALSE(parsed.ok());
    const std::string message(parsed.status().message());
    EXPECT_THAT(message, HasSubstr(path_));
    return message;
  }

  fakes::TempFolder folder_;
  std::string path_ = folder_.File("m.gguf");
};

const std::string kRow(32 * 4, '\0');  // 32 zeros in F32.

TEST_F(GgufFileTest, ReadsEveryKindOfValue) {
  GgufWriter writer;
  writer.Text("text", "näme").U32("u32", 7).F32("f32", 0.5F).Bool("bool", true);
  writer.Texts("texts", {"a", "", "c"}).I32s("i32s", {1, -2});
  writer.Raw("i8", 1, Bytes<std::int8_t>(-5)).Raw("u64", 10, Bytes<std::uint64_t>(1) + "");
  writer.Raw("f64", 12, Bytes(0.25)).Raw("u16", 2, Bytes<std::uint16_t>(65535));
  const auto parsed = Parse(writer.Build());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Text("text")->value(), "näme");
  EXPECT_EQ(parsed->Integer("u32")->value(), 7);
  EXPECT_EQ(parsed->Integer("i8")->value(), -5);
  EXPECT_EQ(parsed->Integer("u16")->value(), 65535);
  EXPECT_EQ(parsed->Integer("u64")->value(), 1);
  EXPECT_EQ(parsed->Number("f32")->value(), 0.5);
  EXPECT_EQ(parsed->Number("f64")->value(), 0.25);
  EXPECT_EQ(parsed->Number("u32")->value(), 7.0);
  EXPECT_EQ(parsed->Boolean("bool")->value(), true);
  EXPECT_EQ(parsed->Texts("texts")->value(), (std::vector<std::string>{"a", "", "c"}));
  EXPECT_EQ(parsed->Integers("i32s")->value(), (std::vector<std::int64_t>{1, -2}));
  EXPECT_FALSE(parsed->Integer("absent")->has_value());
  EXPECT_THAT(std::string(parsed->Integer("text").status().message()),
              AllOf(HasSubstr("text"), HasSubstr("not an integer")));
}

TEST_F(GgufFileTest, ReadsTensorsOutermostDimensionFirst) {
  for (const std::uint32_t version : {2U, 3U}) {
    GgufWriter writer;
    writer.version = version;
    writer.Tensor("a", {3, 32}, "F16", std::string(3 * 64, 'x'));
    writer.Tensor("b", {2, 64}, "Q4_1", std::string(4 * 20, 'y'));
    const auto parsed = Parse(writer.Build());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ASSERT_EQ(parsed->tensors().size(), 2U);
    const StoredTensor& b = parsed->tensors()[1];
    EXPECT_EQ(b.name, "b");
    EXPECT_EQ(b.type, TensorType::kQ4_1);
    EXPECT_EQ(b.shape, (std::vector<std::int64_t>{2, 64}));
    EXPECT_EQ(b.bytes, 80);
    std::string bytes(80, ' ');
    ASSERT_TRUE(b.file->ReadAt(b.offset, std::as_writable_bytes(std::span<char>(bytes)), "b").ok());
    EXPECT_EQ(bytes, std::string(80, 'y'));
  }
}

TEST_F(GgufFileTest, RefusesOtherFilesAndVersions) {
  EXPECT_THAT(Error(""), HasSubstr("at offset 0, where the file ends"));
  EXPECT_THAT(Error("GGU"), HasSubstr("file ends"));
  EXPECT_THAT(Error("{\"json\": 1}"), HasSubstr("not a GGUF file"));
  GgufWriter writer;
  writer.version = 1;
  EXPECT_THAT(Error(writer.Build()), HasSubstr("version 1"));
  writer.version = 3U << 24U;
  EXPECT_THAT(Error(writer.Build()), HasSubstr("big-endian"));
}

TEST_F(GgufFileTest, C83_CountsBeyondTheFile) {
  GgufWriter writer;
  writer.U32("a", 1);
  EXPECT_THAT(Error(writer.Build(0, std::uint64_t{1} << 40U)),
              AllOf(HasSubstr("1099511627776"), HasSubstr("metadata keys")));
  EXPECT_THAT(Error(writer.Build(std::uint64_t{1} << 40U, 1)), HasSubstr("tensors"));
  EXPECT_THAT(Error(writer.Build(~std::uint64_t{0}, 1)), HasSubstr("18446744073709551615"));
}

TEST_F(GgufFileTest, C83_StringLengthBeyondTheFile) {
  const std::string huge = Bytes(std::uint64_t{1} << 30U) + "abc";
  const std::string file = GgufWriter().Raw("general.name", 8, huge).Build();
  EXPECT_LT(file.size(), 160U);
  EXPECT_THAT(Error(file), AllOf(HasSubstr("general.name"), HasSubstr("1073741824")));
  EXPECT_THAT(Error(GgufWriter().Raw("k", 8, Bytes(~std::uint64_t{0})).Build()), HasSubstr("k"));
}

TEST_F(GgufFileTest, C83_ArrayLengthBeyondTheFile) {
  for (const std::uint32_t type : {0U, 5U, 6U, 8U, 10U, 12U}) {
    const std::string array = Bytes(type) + Bytes(std::uint64_t{1} << 40U);
    EXPECT_THAT(Error(GgufWriter().Raw("list", 9, array).Build()),
                AllOf(HasSubstr("list"), HasSubstr("1099511627776")));
  }
  const std::string nested = Bytes(std::uint32_t{9}) + Bytes(std::uint64_t{1});
  EXPECT_THAT(Error(GgufWriter().Raw("list", 9, nested).Build()), HasSubstr("unsupported type 9"));
}

TEST_F(GgufFileTest, C83_BadAlignment) {
  for (const std::uint32_t alignment : {0U, 3U, 48U, 1U << 30U}) {
    const auto error = Error(GgufWriter().U32("general.alignment", alignment).Build());
    EXPECT_THAT(error, AllOf(HasSubstr("general.alignment"), HasSubstr(std::to_string(alignment))));
  }
}

TEST_F(GgufFileTest, HonoursAlignment) {
  GgufWriter writer;
  writer.alignment = 256;
  writer.U32("general.alignment", 256);
  writer.Tensor("a", {1, 32}, "F32", kRow).Tensor("b", {32}, "F32", std::string(128, 'b'));
  const auto parsed = Parse(writer.Build());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->tensors()[1].offset % 256, 0U);
  std::string bytes(1, ' ');
  ASSERT_TRUE(
      parsed->tensors()[1]
          .file
          ->ReadAt(parsed->tensors()[1].offset, std::as_writable_bytes(std::span<char>(bytes)), "b")
          .ok());
  EXPECT_EQ(bytes, "b");
}

TEST_F(GgufFileTest, C83_ImpossibleShapes) {
  const auto error = [&](const std::vector<std::uint64_t>& shape) {
    return Error(GgufWriter().TensorInfo("bad.weight", shape, 0, 0).Build());
  };
  EXPECT_THAT(error({0}), HasSubstr("bad.weight"));
  EXPECT_THAT(error({4, 0}), HasSubstr("bad.weight"));
  EXPECT_THAT(error({2, ~std::uint64_t{0}}), HasSubstr("bad.weight"));
  EXPECT_THAT(error({1U << 31U, 1U << 31U, 1U << 31U}), HasSubstr("impossible"));
  EXPECT_THAT(error({std::uint64_t{1} << 32U, std::uint64_t{1} << 32U}), HasSubstr("bad.weight"));
  EXPECT_THAT(error({std::uint64_t{1} << 61U}), HasSubstr("cannot fit"));
  EXPECT_THAT(error({}), HasSubstr("0 dimensions"));
  EXPECT_THAT(error({1, 1, 1, 1, 1}), HasSubstr("5 dimensions"));
}

TEST_F(GgufFileTest, C81_C83_UnsupportedTypesAreRefusedByName) {
  const auto error = [&](std::uint32_t type) {
    return Error(GgufWriter().TensorInfo("w", {256}, type, 0).Build());
  };
  EXPECT_THAT(error(14), AllOf(HasSubstr("tensor w"), HasSubstr("Q6_K")));
  EXPECT_THAT(error(28), HasSubstr("F64"));
  EXPECT_THAT(error(24), HasSubstr("I8"));
  EXPECT_THAT(error(4), HasSubstr("unknown"));
  EXPECT_THAT(error(255), AllOf(HasSubstr("255"), HasSubstr("tensor w")));
  EXPECT_THAT(Error(GgufWriter().Raw("k", 77, "x").Build()), HasSubstr("value type 77"));
}

TEST_F(GgufFileTest, C75_OffsetsOverlappingWithHolesOrPastTheEnd) {
  const std::string data(256, '\0');
  const auto error = [&](std::uint64_t first, std::uint64_t second) {
    return Error(
        GgufWriter().TensorInfo("a", {32}, 0, first).TensorInfo("b", {32}, 0, second).Build() +
        data);
  };
  EXPECT_THAT(error(0, 0), HasSubstr("tensor b"));
  EXPECT_THAT(error(0, 64), HasSubstr("tensor b"));
  EXPECT_THAT(error(0, 160), HasSubstr("tensor b"));
  EXPECT_THAT(error(32, 128), HasSubstr("tensor a"));
  EXPECT_THAT(error(std::uint64_t{1} << 40, 0), HasSubstr("tensor a"));
  EXPECT_THAT(error(0, ~std::uint64_t{0} - 3), HasSubstr("tensor b"));
  // In order of place, not of the list.
  GgufWriter swapped;
  swapped.TensorInfo("a", {32}, 0, 128).TensorInfo("b", {32}, 0, 0);
  EXPECT_TRUE(Parse(swapped.Build() + data).ok());
}

TEST_F(GgufFileTest, RefusesDuplicates) {
  EXPECT_THAT(Error(GgufWriter().U32("k", 1).U32("k", 2).Build()), HasSubstr("k appears twice"));
  EXPECT_THAT(
      Error(GgufWriter().Tensor("t", {32}, "F32", kRow).Tensor("t", {32}, "F32", kRow).Build()),
      HasSubstr("tensor t appears twice"));
}

TEST_F(GgufFileTest, RefusesRowsThatAreNotWholeGroups) {
  EXPECT_THAT(Error(GgufWriter().TensorInfo("w", {2, 48}, 8, 0).Build() + std::string(4096, 0)),
              AllOf(HasSubstr("tensor w"), HasSubstr("48")));
}

TEST_F(GgufFileTest, C76_EveryTruncationIsAnError) {
  GgufWriter writer;
  writer.Text("general.architecture", "llama").Texts("list", {"one", "two"}).U32("n", 3);
  writer.Tensor("a", {2, 32}, "F32", kRow + kRow).Tensor("b", {1, 32}, "Q8_0", std::string(34, 1));
  const std::string whole = writer.Build();
  ASSERT_TRUE(Parse(whole).ok());
  // The padding after the last tensor (34 of 64 bytes used) is not missed.
  for (std::size_t size = 0; size < whole.size() - 30; ++size) {
    EXPECT_FALSE(Parse(whole.substr(0, size)).ok()) << size;
  }
  EXPECT_THAT(Error(whole.substr(0, whole.size() - 31)),
              AllOf(HasSubstr("tensor b"), HasSubstr("truncated")));
}

TEST_F(GgufFileTest, C83_FlippedBytesNeverCrash) {
  GgufWriter writer;
  writer.Text("general.architecture", "llama").Texts("list", {"one", "two"}).U32("n", 3);
  writer.Tensor("a", {2, 32}, "F32", kRow + kRow);
  const std::string whole = writer.Build();
  for (std::size_t i = 0; i < whole.size() - 256; ++i) {
    for (const char value : {'\xFF', '\x00', '\x7F', '\x80'}) {
      std::string changed = whole;
      changed[i] = value;
      const auto parsed = Parse(changed);
      if (!parsed.ok()) {
        EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(path_));
      }
    }
  }
}

}  // namespace
}  // namespace quire::engine::model
