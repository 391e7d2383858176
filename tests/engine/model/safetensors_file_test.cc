// Crafted safetensors files: refused with the tensor's name or the number that lies.
#include "engine/model/safetensors_file.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/file_writers.h"

namespace quire::engine::model {
namespace {

using fakes::BuildSafetensors;
using fakes::Bytes;
using testing::AllOf;
using testing::HasSubstr;

class SafetensorsFileTest : public testing::Test {
 protected:
  absl::StatusOr<SafetensorsFile> Parse(const std::string& content) {
    fakes::WriteFile(path_, content);
    auto file = File::Open(path_);
    EXPECT_TRUE(file.ok()) << file.status();
    return ParseSafetensors(*file);
  }
  std::string Error(const std::string& content) {
    const auto parsed = Parse(content);
    EXPECT_FALSE(parsed.ok()) << content;
    const std::string message(parsed.status().message());
    EXPECT_THAT(message, HasSubstr(path_));
    return message;
  }
  // One tensor "w" with the rest of its entry given, over 16 bytes of data.
  std::string EntryError(const std::string& entry) {
    return Error(BuildSafetensors("{\"w\":{" + entry + "}}", std::string(16, 'd')));
  }

  fakes::TempFolder folder_;
  std::string path_ = folder_.File("m.safetensors");
};

TEST_F(SafetensorsFileTest, ReadsTensorsAndSkipsMetadata) {
  const auto parsed = Parse(BuildSafetensors({{"b", "F32", {1, 2}, std::string(8, 'b')},
                                              {"a", "BF16", {3}, std::string(6, 'a')},
                                              {"i", "I64", {1}, std::string(8, 'i')}}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->tensors.size(), 2U);
  const StoredTensor& a = parsed->tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.type, TensorType::kBf16);
  EXPECT_EQ(a.bytes, 6);
  std::string bytes(6, ' ');
  ASSERT_TRUE(a.file->ReadAt(a.offset, std::as_writable_bytes(std::span<char>(bytes)), "a").ok());
  EXPECT_EQ(bytes, "aaaaaa");
  ASSERT_EQ(parsed->unsupported.size(), 1U);
  EXPECT_EQ(parsed->unsupported[0].type, "I64");
}

TEST_F(SafetensorsFileTest, C74_HeaderLengthIsChecked) {
  const std::string good = BuildSafetensors({{"w", "F32", {1}, std::string(4, 'w')}});
  EXPECT_THAT(Error(""), HasSubstr("header's length"));
  EXPECT_THAT(Error(std::string(7, '\0')), HasSubstr("header's length"));
  EXPECT_THAT(Error(Bytes(~std::uint64_t{0}) + "{}"), HasSubstr("18446744073709551615"));
  EXPECT_THAT(Error(Bytes<std::uint64_t>(good.size() + 1) + good.substr(8)),
              HasSubstr(std::to_string(good.size() + 1)));
  EXPECT_THAT(Error(Bytes<std::uint64_t>(3) + "{}"), HasSubstr("header of 3 bytes"));
  EXPECT_THAT(Error(Bytes<std::uint64_t>(0) + "{}"), HasSubstr("not JSON"));
  EXPECT_THAT(Error(Bytes<std::uint64_t>(200'000'000) + "{}"), HasSubstr("200000000"));
}

TEST_F(SafetensorsFileTest, C74_HeaderMustBeAJsonObject) {
  EXPECT_THAT(Error(BuildSafetensors("not json", "")), HasSubstr("not JSON"));
  EXPECT_THAT(Error(BuildSafetensors("{\"w\":", "")),
              HasSubstr("the header of 5 bytes: not JSON at byte 6"));
  EXPECT_THAT(Error(BuildSafetensors("[]", "")), HasSubstr("not an object"));
  EXPECT_THAT(Error(BuildSafetensors("{\"w\":1}", "")), HasSubstr("tensor w"));
  EXPECT_THAT(Error(BuildSafetensors("{\"\xFF\":1}", "")), HasSubstr("not JSON"));
  EXPECT_THAT(Error(BuildSafetensors("{\"w\":1e999}", "")), HasSubstr("beyond the range"));
  const std::string deep(200'000, '[');
  EXPECT_THAT(Error(BuildSafetensors("{\"w\":" + deep, "")), HasSubstr("not JSON"));
}

TEST_F(SafetensorsFileTest, C74_TrailingSpacesAreAccepted) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}     )";
  const auto parsed = Parse(BuildSafetensors(header, "wwww"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->tensors[0].offset, 8 + header.size());
}

TEST_F(SafetensorsFileTest, C75_OffsetsMustLieInTheData) {
  const std::string f32 = R"("dtype":"F32","shape":[4],"data_offsets":)";
  EXPECT_THAT(EntryError(f32 + "[16,0]"), HasSubstr("tensor w"));
  EXPECT_THAT(EntryError(f32 + "[0,17]"), HasSubstr("tensor w"));
  EXPECT_THAT(EntryError(f32 + "[8,24]"), HasSubstr("tensor w"));
  EXPECT_THAT(EntryError(f32 + "[-16,0]"), HasSubstr("tensor w"));
  EXPECT_THAT(EntryError(f32 + "[0,18446744073709551615]"), HasSubstr("tensor w"));
  EXPECT_THAT(EntryError(f32 + "[0]"), HasSubstr("tensor w"));
  EXPECT_THAT(EntryError(f32 + "[0,8,16]"), HasSubstr("tensor w"));
  EXPECT_THAT(EntryError(f32 + "[0,1.5]"), HasSubstr("tensor w"));
  EXPECT_THAT(EntryError(R"("dtype":"F32","shape":[4])"), HasSubstr("data_offsets"));
}

TEST_F(SafetensorsFileTest, C75_ShapeMustMatchTheBytes) {
  const auto error = [&](const std::string& shape) {
    return EntryError(R"("dtype":"F32","data_offsets":[0,16],"shape":)" + shape);
  };
  EXPECT_THAT(error("[3]"), HasSubstr("tensor w"));
  EXPECT_THAT(error("[2,3]"), HasSubstr("tensor w"));
  EXPECT_THAT(error("[4294967296,4294967296]"), HasSubstr("tensor w"));
  EXPECT_THAT(error("[-4]"), HasSubstr("tensor w"));
  EXPECT_THAT(error("[\"4\"]"), HasSubstr("tensor w"));
  EXPECT_THAT(error("[[4]]"), HasSubstr("tensor w"));
  EXPECT_THAT(error("4"), HasSubstr("tensor w"));
  EXPECT_THAT(error("[0]"), HasSubstr("tensor w"));
}

TEST_F(SafetensorsFileTest, C75_TensorsMustCoverTheDataOnce) {
  const auto error = [&](const std::string& first, const std::string& second) {
    const auto entry = [](const std::string& offsets) {
      return R"({"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}";
    };
    return Error(BuildSafetensors("{\"a\":" + entry(first) + ",\"b\":" + entry(second) + "}",
                                  std::string(16, 'd')));
  };
  EXPECT_THAT(error("[0,8]", "[4,12]"), AllOf(HasSubstr("tensor b"), HasSubstr("overlap")));
  EXPECT_THAT(error("[0,8]", "[0,8]"), HasSubstr("overlap"));
  EXPECT_THAT(error("[4,12]", "[8,16]"), AllOf(HasSubstr("tensor a"), HasSubstr("hole")));
  EXPECT_THAT(EntryError(R"("dtype":"F32","shape":[3],"data_offsets":[0,12])"),
              HasSubstr("16 bytes of data"));
}

TEST_F(SafetensorsFileTest, C75_DuplicateNamesAreRefused) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(Error(BuildSafetensors("{\"w\":" + entry + ",\"w\":" + entry + "}", "dddd")),
              HasSubstr("tensor w appears twice"));
}

TEST_F(SafetensorsFileTest, C81_UnknownTypesAreRefusedByName) {
  EXPECT_THAT(EntryError(R"("dtype":"Q9","shape":[4],"data_offsets":[0,16])"),
              AllOf(HasSubstr("tensor w"), HasSubstr("Q9")));
  EXPECT_THAT(EntryError(R"("dtype":7,"shape":[4],"data_offsets":[0,16])"), HasSubstr("tensor w"));
}

TEST_F(SafetensorsFileTest, C76_EveryTruncationIsAnError) {
  const std::string whole = BuildSafetensors(
      {{"a", "F32", {2}, std::string(8, 'a')}, {"b", "F16", {2}, std::string(4, 'b')}});
  ASSERT_TRUE(Parse(whole).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(Parse(whole.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace quire::engine::model
