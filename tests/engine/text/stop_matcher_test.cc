#include "engine/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace quire::engine::text {
namespace {

struct Outcome {
  std::vector<std::string> sent;  // After each piece, then after the end.
  std::optional<std::size_t> stop;
  std::string text() const {
    std::string joined;
    for (const std::string& piece : sent) joined += piece;
    return joined;
  }
};

Outcome Match(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
              StopInOutput stop_in_output = StopInOutput::kExclude) {
  StopMatcher matcher(std::make_shared<StopStrings>(stops), stop_in_output);
  matcher.Arm();
  Outcome outcome;
  for (const std::string& piece : pieces) {
    outcome.stop = matcher.Append(piece, outcome.sent.emplace_back());
    if (outcome.stop) return outcome;
  }
  matcher.Release(outcome.sent.emplace_back());
  return outcome;
}

using Pieces = std::vector<std::string>;

TEST(StopMatcher, C38_NothingOfAStopStringIsSentBeforeItIsComplete) {
  const Outcome outcome = Match({"DEFGHIJ"}, {"abcDEF", "G", "HI", "J"});
  EXPECT_EQ(outcome.sent, (Pieces{"abc", "", "", ""}));
  EXPECT_EQ(outcome.stop, 0U);
}

TEST(StopMatcher, C39_HeldBackTextIsReleasedWhenNothingMatched) {
  const Outcome outcome = Match({"please"}, {"ple", "as"});
  EXPECT_EQ(outcome.sent, (Pieces{"", "", "pleas"}));
  EXPECT_EQ(outcome.stop, std::nullopt);
}

TEST(StopMatcher, C39_HeldBackTextIsReleasedWhenAnotherStopMatches) {
  const Outcome outcome = Match({"please", "!"}, {"ple", "as", "!x"});
  EXPECT_EQ(outcome.text(), "pleas");
  EXPECT_EQ(outcome.stop, 1U);
}

TEST(StopMatcher, C40_CutsInsideAPiece) {
  const Outcome outcome = Match({".."}, {"a", "..."});
  EXPECT_EQ(outcome.text(), "a");
  EXPECT_EQ(outcome.stop, 0U);
}

TEST(StopMatcher, C41_MatchesLeadingSpacesAndCharactersOfManyBytes) {
  EXPECT_EQ(Match({" any"}, {"is", " an", "y"}).text(), "is");
  EXPECT_EQ(Match({"你好"}, {"说", "你", "好吗"}).text(), "说");
  EXPECT_EQ(Match({"é"}, {"caf", "é"}).text(), "caf");
}

TEST(StopMatcher, C42_TheEarliestCompleteMatchWins) {
  EXPECT_EQ(Match({"abc", "ab"}, {"xabc"}).stop, 1U);
  EXPECT_EQ(Match({"abc", "ab"}, {"xabc"}).text(), "x");
  // Both complete with the same byte: the longest, so nothing of it is left.
  EXPECT_EQ(Match({"bc", "abc"}, {"xabc"}).text(), "x");
  EXPECT_EQ(Match({"abc", "bc"}, {"xabc"}).text(), "x");
}

TEST(StopMatcher, HoldsBackOnlyWhatCanStillMatch) {
  const Outcome outcome = Match({"aab"}, {"aaa", "aac", "a"});
  EXPECT_EQ(outcome.sent, (Pieces{"a", "aaaac", "", "a"}));
}

TEST(StopMatcher, C64_MatchesNul) {
  const std::string stop("\0x", 2);
  EXPECT_EQ(Match({stop}, {std::string("AB\0", 3), "xCD"}).text(), "AB");
}

TEST(StopMatcher, IncludingTheStopHoldsNothingBack) {
  const Outcome outcome = Match({"stop"}, {"a st", "op!"}, StopInOutput::kInclude);
  EXPECT_EQ(outcome.sent, (Pieces{"a st", "op"}));
  EXPECT_EQ(outcome.stop, 0U);
}

TEST(StopMatcher, BeforeItIsArmedStopsPass) {
  StopMatcher matcher(std::make_shared<StopStrings>(Pieces{"ab"}), StopInOutput::kExclude);
  std::string out;
  EXPECT_EQ(matcher.Append("xab", out), std::nullopt);
  EXPECT_EQ(out, "xab");
  EXPECT_EQ(matcher.Append("a", out), std::nullopt);
  EXPECT_EQ(out, "xab");
  matcher.Arm();
  EXPECT_EQ(matcher.Append("b", out), 0U);  // Begun before, completed after.
  EXPECT_EQ(out, "xab");
}

// Against a plain search over the whole text, with random stops, texts and cuts.
TEST(StopMatcher, EqualsASearchInTheWholeText) {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  const auto word = [&](std::size_t max_length) {
    std::string text(1 + random() % max_length, ' ');
    for (char& c : text) c = "ab"[random() % 2];
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    Pieces stops;
    for (std::size_t i = 1 + random() % 3; i > 0; --i) stops.push_back(word(4));
    Pieces pieces;
    std::string text;
    for (std::size_t i = random() % 6; i > 0; --i) text += pieces.emplace_back(word(3));
    std::string expected = text;
    for (std::size_t end = 1; end <= text.size() && expected == text; ++end) {
      for (const std::string& stop : stops) {
        if (!text.substr(0, end).ends_with(stop)) continue;
        expected.resize(std::min(expected.size(), end - stop.size()));
      }
    }
    EXPECT_EQ(Match(stops, pieces).text(), expected)
        << "seed " << kSeed << " round " << round << testing::PrintToString(stops) << text;
  }
}

}  // namespace
}  // namespace quire::engine::text
