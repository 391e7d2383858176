#include "engine/text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::engine::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Find(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  if (!regex.ok()) return {std::string(regex.status().message())};
  RegexScratch scratch;
  std::vector<std::string_view> matches;
  const absl::Status status = regex->FindAll(text, scratch, matches);
  if (!status.ok()) return {std::string(status.message())};
  return {matches.begin(), matches.end()};
}

TEST(Regex, FindsUnicodeClasses) {
  EXPECT_THAT(Find(R"(\p{L}+|\p{N})", "añb 1½x"), ElementsAre("añb", "1", "½", "x"));
  EXPECT_THAT(Find(R"(\s+(?!\S)|\s)", "a   b"), ElementsAre("  ", " "));
  EXPECT_THAT(Find(R"((?i:'s|'re))", "'S 'rE 'ſ"), ElementsAre("'S", "'rE", "'ſ"));
}

// Oniguruma's \s is White_Space; PCRE2's own counts U+180E too.
TEST(Regex, SpacesAreThoseOfUnicode) {
  EXPECT_THAT(Find(R"(\s)", "\u180e\u0085\u00a0\u3000\t\u200b"),
              ElementsAre("\u0085", "\u00a0", "\u3000", "\t"));
  EXPECT_THAT(Find(R"([^\s]+)", "a\u180eb c"), ElementsAre("a\u180eb", "c"));
}

TEST(Regex, MatchesAcrossNul) {
  const std::string text("a\0b", 3);
  EXPECT_THAT(Find(R"([^\s\p{L}])", text), ElementsAre(std::string(1, '\0')));
}

TEST(Regex, RefusesWhatTheDialectsReadDifferently) {
  for (const std::string pattern :
       {R"(\h)", R"(^a)", R"(a$)", R"([a[b]])", R"([a&&b])", R"((?m)a)", R"((?<n>a))", R"(\1)",
        R"(a{2}+)", R"(a{,2})", R"((*UTF)a)", R"([\W])", R"([])", R"(\x41)", R"(a\)", R"(\b)"}) {
    const auto regex = Regex::Compile(pattern);
    EXPECT_EQ(regex.status().code(), absl::StatusCode::kUnimplemented) << pattern;
    EXPECT_THAT(std::string(regex.status().message()), HasSubstr(pattern));
  }
}

TEST(Regex, RefusesMalformedAndEmptyMatchingPatterns) {
  EXPECT_EQ(Regex::Compile("(a").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Regex::Compile(R"(\p{Nope})").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Regex::Compile("a*").status().code(), absl::StatusCode::kUnimplemented);
}

TEST(Regex, GivesUpOnAPatternThatNeedsTooMuchWork) {
  const auto regex = Regex::Compile("(?:a+)+[bd]");
  ASSERT_TRUE(regex.ok());
  RegexScratch scratch;
  std::vector<std::string_view> matches;
  const std::string text(40, 'a');
  EXPECT_EQ(regex->FindAll(text + "c", scratch, matches).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Regex, QuotesLiterals) {
  const std::string text("a.b(c)\\[\n#é\0x", 14);
  EXPECT_THAT(Find(QuoteRegex(text), "aab(c) " + text), ElementsAre(text));
}

}  // namespace
}  // namespace quire::engine::text
