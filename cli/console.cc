#include "cli/console.h"

#include <unistd.h>

#include <iostream>

namespace quire::cli {

Console Console::Process() {
  return {.out = std::cout,
          .err = std::cerr,
          .out_is_terminal = isatty(STDOUT_FILENO) == 1,
          .err_is_terminal = isatty(STDERR_FILENO) == 1};
}

ExitCode Console::Fail(const absl::Status& status, ExitCode code) const {
  out.flush();
  err << "error: " << status.message() << std::endl;
  return code;
}

}  // namespace quire::cli
