// Where a command writes: data to `out`, everything else to `err`. Tests hand in string streams.
#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "cli/exit_code.h"

namespace quire::cli {

struct Console {
  std::ostream& out;
  std::ostream& err;
  // A person looks at the stream: bars and colours are welcome.
  bool out_is_terminal = false;
  bool err_is_terminal = false;

  // stdout and stderr of the process.
  static Console Process();

  // Prints "error: …" to `err` and returns `code`.
  ExitCode Fail(const absl::Status& status, ExitCode code = ExitCode::kFailed) const;
};

}  // namespace quire::cli
