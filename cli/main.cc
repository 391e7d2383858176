#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/app.h"

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("quire"));  // Data alone goes to stdout.
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  return static_cast<int>(quire::cli::RunQuire(
      arguments, {quire::cli::Environment::Read(), quire::cli::Console::Process()}));
}
