#include "cli/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseInt, C135_TakesTheWholeTextOrNothing) {
  EXPECT_EQ(*ParseInt("-12"), -12);
  EXPECT_EQ(*ParseInt("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  for (const char* text : {"", "12abc", " 12", "1e3", "+5", "0x10", "9223372036854775808"}) {
    EXPECT_FALSE(ParseInt(text).ok()) << text;
  }
  EXPECT_THAT(ParseInt("12abc").status().message(), HasSubstr("12abc"));
}

TEST(ParseUint, HoldsEverySeed) {
  EXPECT_EQ(*ParseUint("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_FALSE(ParseUint("-1").ok());
  EXPECT_FALSE(ParseUint("18446744073709551616").ok());
}

TEST(ParseDouble, RefusesWhatIsNotFinite) {
  EXPECT_EQ(*ParseDouble("0.7"), 0.7);
  EXPECT_EQ(*ParseDouble("-2"), -2);
  for (const char* text : {"nan", "inf", "-inf", "1e999", "0.7x", ""}) {
    EXPECT_FALSE(ParseDouble(text).ok()) << text;
  }
}

TEST(ParseBytes, KnowsBinaryUnitsAndPlainBytes) {
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("536870912"), 536'870'912);
  EXPECT_EQ(*ParseBytes("1KiB"), 1024);
  EXPECT_EQ(*ParseBytes("512MiB"), 536'870'912);
  EXPECT_EQ(*ParseBytes("1.5 GiB"), 1'610'612'736);
  EXPECT_EQ(*ParseBytes("2TiB"), std::int64_t{1} << 41);
}

TEST(ParseBytes, RefusesEverythingElseWithAHint) {
  for (const char* text : {"", "12abc", "MiB", "-1", "-1MiB", "5MB", "5M", "nanGiB", "9e30TiB",
                           "1e300GiB", "512mib"}) {
    const auto bytes = ParseBytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_THAT(bytes.status().message(), HasSubstr(text));
  }
  EXPECT_THAT(ParseBytes("5MB").status().message(), HasSubstr("MiB"));
}

TEST(ParseTokenIds, ReadsListsWithBlanks) {
  EXPECT_THAT(*ParseTokenIds("1,2, 3"), ElementsAre(1, 2, 3));
  EXPECT_THAT(*ParseTokenIds(""), IsEmpty());
  for (const char* text : {"1,,2", "1,2,", "a", "-1", "2147483648"}) {
    EXPECT_FALSE(ParseTokenIds(text).ok()) << text;
  }
}

TEST(Format, WritesNumbersAsPeopleReadThem) {
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(98'362'432), "93.8 MiB");
  EXPECT_EQ(FormatBytes(std::int64_t{64} << 30), "64.0 GiB");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1'048'576), "1,048,576");
  EXPECT_EQ(FormatCount(-1234), "-1,234");
  EXPECT_EQ(DurationText(absl::Milliseconds(12.34)), "12.3 ms");
  EXPECT_EQ(DurationText(absl::Seconds(4.56)), "4.56 s");
  EXPECT_EQ(DurationText(absl::Seconds(125)), "2 min 05 s");
}

TEST(Units, CountsInWords) {
  EXPECT_EQ(Counted(0, "request"), "0 requests");
  EXPECT_EQ(Counted(1, "request"), "1 request");
  EXPECT_EQ(Counted(2000, "such sequence"), "2,000 such sequences");
}

}  // namespace
}  // namespace quire::cli
