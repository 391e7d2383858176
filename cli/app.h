// The command line of `quire` as a function, so that tests can call it.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.h"

namespace quire::cli {

// Reads `arguments` (without the program's name), runs the chosen command and returns its exit
// code. No exception leaves it.
ExitCode RunQuire(std::vector<std::string> arguments, const CommandContext& context);

}  // namespace quire::cli
