#include "cli/line_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <thread>

namespace quire::cli {
namespace {

class LineReaderTest : public ::testing::Test {
 protected:
  LineReaderTest() { EXPECT_EQ(pipe(ends_.data()), 0); }
  ~LineReaderTest() override {
    CloseInput();
    close(ends_[0]);
  }
  void Write(std::string_view text) {
    EXPECT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void CloseInput() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  std::array<int, 2> ends_{};
};

TEST_F(LineReaderTest, SplitsLinesWhateverTheChunks) {
  LineReader reader(ends_[0]);
  Write("one\ntwo\r\n\nth");
  EXPECT_EQ(reader.ReadLine(), "one");
  EXPECT_EQ(reader.ReadLine(), "two");
  EXPECT_EQ(reader.ReadLine(), "");
  Write("ree");
  CloseInput();
  EXPECT_EQ(reader.ReadLine(), "three") << "a last line needs no end";
  EXPECT_EQ(reader.ReadLine(), std::nullopt);
  EXPECT_EQ(reader.ReadLine(), std::nullopt);
}

TEST_F(LineReaderTest, AnInterruptEndsTheWaiting) {
  LineReader reader(ends_[0]);
  std::thread other([&] { reader.Interrupt(); });
  EXPECT_EQ(reader.ReadLine(), std::nullopt);
  other.join();
  Write("late\n");
  EXPECT_EQ(reader.ReadLine(), std::nullopt) << "an interrupt is for good";
}

TEST(LineReader, KeysThatAreNoTextLeaveNoTrace) {
  EXPECT_EQ(WithoutEscapes("h\x1b[Di\x1b[1;5C there\x1bOP\x1b[200~!\x1b[201~"), "hi there!");
  EXPECT_EQ(WithoutEscapes("a\tb\x08\x7f\x01 Grüße"), "a\tb Grüße");
  EXPECT_EQ(WithoutEscapes("cut \x1b["), "cut ");
  EXPECT_EQ(WithoutEscapes("\x1b"), "");
}

}  // namespace
}  // namespace quire::cli
