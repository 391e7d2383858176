// Running another program and waiting for it, without a shell.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace quire::cli {

struct ProcessOptions {
  std::vector<std::pair<std::string, std::string>> extra_environment;
  // Called about every `tick` while the program runs; may be empty.
  std::function<void()> on_tick;
  absl::Duration tick = absl::Milliseconds(200);
};

struct ProcessResult {
  int exit_status = 0;  // 128 + signal when a signal ended it.
  std::string output;   // The end of stdout and stderr together, at most 16 KiB.
};

// Runs argv[0] (found in $PATH) with an empty stdin. NOT_FOUND when it cannot be started.
absl::StatusOr<ProcessResult> RunProcess(const std::vector<std::string>& argv,
                                         const ProcessOptions& options);

}  // namespace quire::cli
