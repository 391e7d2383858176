#include "cli/stream_view.h"

#include <gtest/gtest.h>

#include <sstream>

namespace quire::cli {
namespace {

TEST(PlainView, WritesALineWhenAStreamHasEnoughWords) {
  std::ostringstream out;
  const auto view = NewPlainView(out, 2);
  view->Append(0, "Some words\nthat are not yet enough");
  view->Append(1, "Short.");
  view->Draw();
  EXPECT_EQ(out.str(), "");
  view->Append(0, " for a line, and now they are, with a rest");
  view->Draw();
  EXPECT_EQ(out.str(), "[0] Some words that are not yet enough for a line, and now they are,\n");
  out.str("");
  view->Finish(1);
  view->Finish(0);
  EXPECT_EQ(out.str(), "[1] Short.\n[0] with a rest\n");
}

TEST(TerminalView, RedrawsOneLinePerStreamWithItsTail) {
  std::ostringstream out;
  const auto view = NewTerminalView(out, 2, 15);
  view->Append(0, "0123456789abcdef");
  view->Append(1, "\x1b[31mgrün\n");
  view->Draw();
  // Escape sequences of the model's text never reach the terminal.
  EXPECT_EQ(out.str(),
            "\x1b[1m[0] \x1b[0m6789abcdef\x1b[K\n"
            "\x1b[1m[1] \x1b[0m[31mgrün \x1b[K\n");
  out.str("");
  view->Finish(0);
  view->Draw();
  EXPECT_EQ(out.str().substr(0, 13), "\x1b[2A\x1b[32m[0] ");
}

}  // namespace
}  // namespace quire::cli
