// Plain-text tables with aligned columns.
//
//   Table table({{"request"}, {"tokens", Align::kRight}});
//   table.AddRow({"0", "64"});
//   table.Print(console.out);
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace quire::cli {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

class Table {
 public:
  // Without any title no heading is printed.
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: one cell per column.
  void AddRow(std::vector<std::string> cells);
  // Two blanks between columns, no blanks at line ends.
  void Print(std::ostream& out) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Characters of UTF-8 text (code points; wide and combining ones count one).
std::size_t DisplayWidth(std::string_view text);

}  // namespace quire::cli
