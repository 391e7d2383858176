#include "cli/stream_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/table.h"

namespace quire::cli {
namespace {

constexpr std::size_t kPlainLineBytes = 64;

// Adds `text` to `line` with line breaks as blanks and without control characters.
void AppendFlat(std::string_view text, std::string* line) {
  for (const char c : text) {
    const bool is_break = c == '\n' || c == '\r' || c == '\t';
    if (static_cast<unsigned char>(c) < 0x20 && !is_break) continue;
    line->push_back(is_break ? ' ' : c);
  }
}

// The last `width` characters.
std::string_view Tail(std::string_view text, std::size_t width) {
  std::size_t characters = 0;
  std::size_t begin = text.size();
  while (begin > 0 && characters < width) {
    --begin;
    if ((static_cast<unsigned char>(text[begin]) & 0xC0) != 0x80) ++characters;
  }
  return text.substr(begin);
}

class TerminalView final : public StreamView {
 public:
  TerminalView(std::ostream& out, std::size_t num_streams, std::size_t width)
      : out_(out), width_(width), lines_(num_streams), finished_(num_streams) {}

  void Append(std::size_t stream, std::string_view text) override {
    AppendFlat(text, &lines_[stream]);
  }
  void Finish(std::size_t stream) override { finished_[stream] = true; }
  void Draw() override {
    if (drawn_) out_ << fmt::format("\x1b[{}A", lines_.size());
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const std::string label = fmt::format("[{}] ", i);
      const std::size_t room = width_ > label.size() + 1 ? width_ - label.size() - 1 : 1;
      out_ << (finished_[i] ? "\x1b[32m" : "\x1b[1m") << label << "\x1b[0m" << Tail(lines_[i], room)
           << "\x1b[K\n";
    }
    out_ << std::flush;
    drawn_ = true;
  }

 private:
  std::ostream& out_;
  const std::size_t width_;
  std::vector<std::string> lines_;
  std::vector<bool> finished_;
  bool drawn_ = false;
};

class PlainView final : public StreamView {
 public:
  PlainView(std::ostream& out, std::size_t num_streams) : out_(out), pending_(num_streams) {}

  void Append(std::size_t stream, std::string_view text) override {
    AppendFlat(text, &pending_[stream]);
  }
  void Finish(std::size_t stream) override {
    if (!pending_[stream].empty()) PrintLine(stream, pending_[stream].size());
  }
  void Draw() override {
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      while (pending_[i].size() >= kPlainLineBytes) {
        // Between words, so that no character is cut either.
        const std::size_t blank = pending_[i].rfind(' ', kPlainLineBytes);
        if (blank == std::string::npos || blank == 0) break;
        PrintLine(i, blank + 1);
      }
    }
    out_ << std::flush;
  }

 private:
  void PrintLine(std::size_t stream, std::size_t bytes) {
    std::string line = pending_[stream].substr(0, bytes);
    pending_[stream].erase(0, bytes);
    line.erase(line.find_last_not_of(' ') + 1);
    out_ << fmt::format("[{}] {}\n", stream, line);
  }

  std::ostream& out_;
  std::vector<std::string> pending_;
};

}  // namespace

std::unique_ptr<StreamView> NewTerminalView(std::ostream& out, std::size_t num_streams,
                                            std::size_t width) {
  return std::make_unique<TerminalView>(out, num_streams, width);
}

std::unique_ptr<StreamView> NewPlainView(std::ostream& out, std::size_t num_streams) {
  return std::make_unique<PlainView>(out, num_streams);
}

std::size_t TerminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace quire::cli
