#include "cli/table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace quire::cli {
namespace {

TEST(Table, AlignsColumnsAndEndsLinesWithoutBlanks) {
  Table table({{"name"}, {"tokens", Align::kRight}, {"note"}});
  table.AddRow({"a", "1000", ""});
  table.AddRow({"long name", "7", "x"});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(),
            "name       tokens  note\n"
            "a            1000\n"
            "long name       7  x\n");
}

TEST(Table, CountsCharactersNotBytes) {
  EXPECT_EQ(DisplayWidth("Größe"), 5U);
  Table table({{""}, {""}});
  table.AddRow({"é", "1"});
  table.AddRow({"ab", "2"});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(), "é   1\nab  2\n");
}

}  // namespace
}  // namespace quire::cli
