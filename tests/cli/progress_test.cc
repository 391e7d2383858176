#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace quire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProgressTest : public ::testing::Test {
 protected:
  Console ConsoleFor(bool terminal) {
    return {.out = out_, .err = err_, .out_is_terminal = false, .err_is_terminal = terminal};
  }
  std::string TakeErr() {
    std::string text = err_.str();
    err_.str("");
    return text;
  }

  std::ostringstream out_, err_;
  ManualClock clock_;
};

TEST_F(ProgressTest, DrawsABarOnATerminalAtMostTenTimesASecond) {
  Progress progress(ConsoleFor(true), {}, clock_);
  progress.Update("loading", 1, 4);
  const std::string bar = TakeErr();
  EXPECT_THAT(bar, HasSubstr("loading  [#######.......................]  25 %  1 of 4"));
  EXPECT_THAT(bar, Not(HasSubstr("\n")));
  progress.Update("loading", 2, 4);
  EXPECT_EQ(TakeErr(), "");
  clock_.Advance(Progress::kRedrawEvery);
  progress.Update("loading", 3, 4);
  EXPECT_THAT(TakeErr(), HasSubstr("75 %"));
  progress.Update("checking", 0, 0);  // A new stage shows at once.
  EXPECT_THAT(TakeErr(), HasSubstr("checking  …"));
  progress.Clear();
  EXPECT_EQ(TakeErr(), "\r\x1b[K");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, WritesAPlainLineNowAndThenElsewhere) {
  Progress progress(ConsoleFor(false), {}, clock_);
  progress.Update("loading", 1, 4);
  EXPECT_EQ(TakeErr(), "");
  clock_.Advance(Progress::kLineEvery);
  progress.Update("loading", 2, 4);
  EXPECT_EQ(TakeErr(), "loading: 50 %  2 of 4\n");
  progress.Update("loading", 3, 4);
  EXPECT_EQ(TakeErr(), "");
  progress.Clear();
  EXPECT_EQ(TakeErr(), "");
}

TEST_F(ProgressTest, NeverClaimsMoreThanAll) {
  Progress progress(ConsoleFor(true), {}, clock_);
  progress.Update("downloading", 9, 4);
  EXPECT_THAT(TakeErr(), HasSubstr("100 %"));
}

}  // namespace
}  // namespace quire::cli
