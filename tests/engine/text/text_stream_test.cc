#include "engine/text/text_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/text/test_tokenizers.h"

namespace quire::engine::text {
namespace {

constexpr TokenId kEos = 257;
constexpr TokenId kFirstExtra = 259;

// A branch that puts out `tokens`, each given as bytes, then ends.
class TextStreamTest : public testing::Test {
 protected:
  void Start(const std::vector<std::string>& tokens, const std::vector<std::string>& stops,
             const TextStreamOptions& options = {}) {
    auto tokenizer = TokenizerFromTables(ByteTables(tokens));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    stream_ =
        std::make_unique<TextStream>(*tokenizer_, std::make_shared<StopStrings>(stops), options);
    for (std::size_t i = 0; i < tokens.size() && !stop_; ++i) {
      stop_ = stream_->Append(kFirstExtra + static_cast<TokenId>(i), sent_.emplace_back());
    }
  }
  std::string Finish() {
    stream_->Finish(sent_.emplace_back());
    std::string text;
    for (const std::string& piece : sent_) text += piece;
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TextStream> stream_;
  std::vector<std::string> sent_;
  std::optional<std::string> stop_;
};

TEST_F(TextStreamTest, C38_StopStringOverManyTokens) {
  Start({"abcDEF", "G", "HI", "J", "never"}, {"DEFGHIJ"});
  EXPECT_EQ(stop_, "DEFGHIJ");
  EXPECT_EQ(sent_.size(), 4U);  // The token that completed it was the last.
  EXPECT_EQ(Finish(), "abc");
}

TEST_F(TextStreamTest, C39_TextHeldBackIsNotLostAtTheEnd) {
  Start({"ple", "as"}, {"please"});
  EXPECT_EQ(sent_, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(Finish(), "pleas");
}

TEST_F(TextStreamTest, C39_TextHeldBackIsNotLostAtAnotherStop) {
  Start({"ple", "as", "#"}, {"please", "#"});
  EXPECT_EQ(stop_, "#");
  EXPECT_EQ(Finish(), "pleas");
}

TEST_F(TextStreamTest, C40_StopInsideAToken) {
  Start({"a", "..."}, {".."});
  EXPECT_EQ(stop_, "..");
  EXPECT_EQ(Finish(), "a");
}

TEST_F(TextStreamTest, C41_StopInACharacterThatIsSplitOverTokens) {
  Start({"caf\xC3", "\xA9 au"}, {"é"});
  EXPECT_EQ(stop_, "é");
  EXPECT_EQ(Finish(), "caf");
}

TEST_F(TextStreamTest, C43_SplitCharactersComeWhole) {
  Start({"\xF0\x9F", "\x98\x80", "\xF0", "\x9F\x98", "\x81", "\xED", "\x95", "\x9C", "\xF0", "\x9F",
         "\x9A", "\x80"},
        {});
  EXPECT_EQ(sent_, (std::vector<std::string>{"", "😀", "", "", "😁", "", "", "한", "", "", "", "🚀"}));
  EXPECT_EQ(Finish(), "😀😁한🚀");
}

TEST_F(TextStreamTest, IncompleteCharacterAtTheEndIsReplaced) {
  Start({"ok", "\xF0\x9F"}, {"never"});
  EXPECT_EQ(Finish(), "ok\xEF\xBF\xBD");
}

TEST_F(TextStreamTest, C71_SpacesAtTheStartAreKept) {
  Start({"  two", " one"}, {"x"});
  EXPECT_EQ(Finish(), "  two one");
}

TEST_F(TextStreamTest, C48_StopStringsCountOnlyAfterMinTokens) {
  Start({"a", "#", "b", "#", "c"}, {"#"}, {.min_tokens = 2});
  EXPECT_EQ(stop_, "#");
  EXPECT_EQ(sent_.size(), 4U);
  EXPECT_EQ(Finish(), "a#b");
}

TEST_F(TextStreamTest, StopCanBeShown) {
  Start({"a", "..."}, {".."}, {.stop_in_output = StopInOutput::kInclude});
  EXPECT_EQ(Finish(), "a..");
}

TEST_F(TextStreamTest, NothingFollowsAStop) {
  Start({"a#", "b"}, {"#"});
  std::string out;
  stream_->Finish(out);
  stream_->Finish(out);
  EXPECT_EQ(out, "");
}

// The token that completed the stop also began a character: that is cut off too.
TEST_F(TextStreamTest, AnUnfinishedCharacterBehindAStopIsDropped) {
  Start({"a#\xF0"}, {"#"});
  EXPECT_EQ(stop_, "#");
  EXPECT_EQ(Finish(), "a");
}

TEST_F(TextStreamTest, SpecialTokensAreSkippedOrKept) {
  for (const auto& [mode, expected] :
       {std::pair{SpecialTokens::kSkip, ""}, std::pair{SpecialTokens::kKeep, "</s>"}}) {
    Start({}, {}, {.special_tokens = mode});
    std::string out;
    stream_->Append(kEos, out);
    EXPECT_EQ(out, expected);
  }
}

}  // namespace
}  // namespace quire::engine::text
