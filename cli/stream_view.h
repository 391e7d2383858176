// Several answers that arrive at the same time, shown so that a person can follow them.
//
// Thread: one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/console.h"

namespace quire::cli {

class StreamView {
 public:
  virtual ~StreamView() = default;
  virtual void Append(std::size_t stream, std::string_view text) = 0;
  virtual void Finish(std::size_t stream) = 0;
  // Shows what has come since the last call.
  virtual void Draw() = 0;
};

// A line per stream that is written again and again, with the end of what came.
// `width`: columns of the terminal.
std::unique_ptr<StreamView> NewTerminalView(std::ostream& out, std::size_t num_streams,
                                            std::size_t width);
// For logs and pipes: "[3] some words", a line whenever a stream has enough of them.
std::unique_ptr<StreamView> NewPlainView(std::ostream& out, std::size_t num_streams);

// Columns of the terminal on stdout; 80 when unknown.
std::size_t TerminalWidth();

}  // namespace quire::cli
