// The real `quire` binary as tests drive it: run to its end, or kept running as a server.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace quire::cli {

struct ProcessEnd {
  int exit_status = -1;  // 128 + signal when a signal ended it.
  std::string out, err;

  // The lines of `out`, each parsed as JSON.
  std::vector<nlohmann::json> JsonLines() const;
};

struct ProcessSetup {
  std::string input = {};                 // Its standard input.
  std::string err_path = {};              // Where stderr goes instead of being collected.
  std::vector<std::string> wrapper = {};  // A program and its arguments that starts `quire`.
};

// A started `quire`. Its output is collected while it runs.
class QuireProcess {
 public:
  explicit QuireProcess(std::vector<std::string> arguments, const ProcessSetup& setup = {});
  ~QuireProcess();  // Kills it unless it has ended.
  QuireProcess(const QuireProcess&) = delete;
  QuireProcess& operator=(const QuireProcess&) = delete;

  // Waits until `text` has appeared on stdout or stderr; false when the process ends without it.
  bool WaitForOutput(const std::string& text);
  void Signal(int signal);
  // "VmHWM" and so on of /proc/<pid>/status, in bytes.
  std::int64_t MemoryOf(const std::string& key) const;
  ProcessEnd Wait();

 private:
  struct Output {
    std::string text;
    bool closed = false;
  };
  void Collect(int fd, Output* output);

  pid_t pid_ = 0;
  absl::Mutex mutex_;
  Output out_ ABSL_GUARDED_BY(mutex_);
  Output err_ ABSL_GUARDED_BY(mutex_);
  std::thread out_reader_, err_reader_;
};

// Runs `quire` to its end.
ProcessEnd RunBinary(std::vector<std::string> arguments, const std::string& input = "");

}  // namespace quire::cli
