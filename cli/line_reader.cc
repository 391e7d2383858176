#include "cli/line_reader.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "base/check.h"

namespace quire::cli {

std::string WithoutEscapes(std::string_view line) {
  std::string text;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line.substr(at).starts_with("\x1b[")) {
      // ECMA-48: parameters and intermediates are below '@', the final byte is not.
      at += 2;
      while (at < line.size() && line[at] >= ' ' && line[at] < '@') ++at;
    } else if (line.substr(at).starts_with("\x1bO")) {
      at += 2;
    } else if (line[at] == '\t' ||
               (static_cast<unsigned char>(line[at]) >= ' ' && line[at] != '\x7f')) {
      text.push_back(line[at]);
    }
  }
  return text;
}

LineReader::LineReader(int input_fd)
    : input_fd_(input_fd), interrupt_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  QUIRE_CHECK(interrupt_fd_ >= 0);
}

LineReader::~LineReader() { close(interrupt_fd_); }

void LineReader::Interrupt() {
  const std::uint64_t one = 1;
  static_cast<void>(write(interrupt_fd_, &one, sizeof(one)) == sizeof(one));
}

std::optional<std::string> LineReader::TakeBuffered() {
  const std::size_t end = buffer_.find('\n');
  if (end == std::string::npos && (!at_end_ || buffer_.empty())) return std::nullopt;
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end == std::string::npos ? end : end + 1);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

std::optional<std::string> LineReader::ReadLine() {
  while (true) {
    std::array<pollfd, 2> waiting = {{{.fd = interrupt_fd_, .events = POLLIN, .revents = 0},
                                      {.fd = input_fd_, .events = POLLIN, .revents = 0}}};
    // Without waiting when a line is there already: an interrupt still comes first.
    std::optional<std::string> line = TakeBuffered();
    const bool wait = !line && !at_end_;
    if (poll(waiting.data(), wait ? 2 : 1, wait ? -1 : 0) < 0 && errno == EINTR) continue;
    if (waiting[0].revents != 0) return std::nullopt;
    if (!wait) return line;
    std::array<char, 4096> chunk{};
    const ssize_t count = read(input_fd_, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      at_end_ = true;
    } else {
      buffer_.append(chunk.data(), static_cast<std::size_t>(count));
    }
  }
}

}  // namespace quire::cli
