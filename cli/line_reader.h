// Lines of standard input that another thread can interrupt.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire::cli {

// `line` without the escape sequences that a terminal sends for arrow and function keys, and
// without control characters but tabs.
std::string WithoutEscapes(std::string_view line);

// Thread: ReadLine on one, Interrupt on any.
class LineReader {
 public:
  explicit LineReader(int input_fd);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end; none at the end of input and after Interrupt.
  std::optional<std::string> ReadLine();
  // Makes the current and every later ReadLine return none.
  void Interrupt();

 private:
  std::optional<std::string> TakeBuffered();

  const int input_fd_;
  int interrupt_fd_;
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace quire::cli
