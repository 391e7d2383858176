#include "engine/text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace quire::engine::text {
namespace {

constexpr char kReplaced[] = "\xEF\xBF\xBD";

std::string Repair(const std::vector<std::string>& pieces) {
  Utf8Repairer repairer;
  std::string out;
  for (const std::string& piece : pieces) repairer.Append(piece, out);
  repairer.Flush(out);
  return out;
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(FindInvalidUtf8(""), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8(std::string("a\0b", 3)), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("é€😀\xF4\x8F\xBF\xBF"), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("ab\xFF"), 2U);
  EXPECT_EQ(FindInvalidUtf8("ab€\xE2\x82"), 5U);  // Cut short.
}

TEST(Utf8, C65_RefusesEveryKindOfMalformedSequence) {
  for (const std::string bytes :
       {"\xE6\xAD", "\x80", "\xF8\x88\x80\x80\x80", "\xC0\x80", "\xED\xA0\x80", "\xC1\xBF",
        "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3("}) {
    EXPECT_EQ(FindInvalidUtf8("ok" + bytes), 2U) << testing::PrintToString(bytes);
  }
}

// The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11.
TEST(Utf8Repairer, ReplacesEachMaximalPartOnce) {
  const std::string r = kReplaced;
  EXPECT_EQ(Repair({"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"}), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Repair({"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"}), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Repair({"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"}),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Repair({"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"}), r + r + r + r + "A");
}

TEST(Utf8Repairer, HoldsBackOnlyWhatMayStillBecomeValid) {
  Utf8Repairer repairer;
  std::string out;
  repairer.Append("a\xF0\x9F", out);
  EXPECT_EQ(out, "a");
  repairer.Append("\x98", out);
  EXPECT_EQ(out, "a");
  repairer.Append("\x80", out);
  EXPECT_EQ(out, "a😀");
  repairer.Append("\xF0\x9F", out);
  repairer.Append("b", out);  // Certain now: replaced at once, and "b" is not lost.
  EXPECT_EQ(out, std::string("a😀") + kReplaced + "b");
  repairer.Append("\xE2\x82", out);
  repairer.Flush(out);
  EXPECT_EQ(out, std::string("a😀") + kReplaced + "b" + kReplaced);
  repairer.Flush(out);
  EXPECT_EQ(out, std::string("a😀") + kReplaced + "b" + kReplaced);
}

TEST(Utf8Repairer, DoesNotDependOnWhereTheBytesAreCut) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const std::string alphabet = "a\x80\x9F\xA0\xBF\xC2\xE0\xE1\xED\xF0\xF1\xF4\xFF";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    std::vector<std::string> pieces(1);
    for (int i = 0; i < 12; ++i) {
      const char byte = alphabet[random() % alphabet.size()];
      bytes += byte;
      if (random() % 2 == 0) pieces.emplace_back();
      pieces.back() += byte;
    }
    const std::string repaired = Repair({bytes});
    EXPECT_EQ(Repair(pieces), repaired) << "seed " << kSeed << " round " << round;
    EXPECT_EQ(FindInvalidUtf8(repaired), std::nullopt);
    if (!FindInvalidUtf8(bytes)) {
      EXPECT_EQ(repaired, bytes);
    }
  }
}

}  // namespace
}  // namespace quire::engine::text
