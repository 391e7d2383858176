// What `quire` tells its caller when it ends. Shown by `quire --help`. A signal before the work is
// done ends the process with 128 + its number, as a shell would report it.
#pragma once

namespace quire::cli {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,  // The work could not be done, or at least one request failed.
  kUsage = 2,   // A flag, an argument or a line of an input file is wrong; nothing was started.
};

}  // namespace quire::cli
