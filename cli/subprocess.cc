#include "cli/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace quire::cli {
namespace {

constexpr std::size_t kMaxOutput = 16 << 10;

// argv or envp as the system wants it; borrows `strings`.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWith(
    const std::vector<std::pair<std::string, std::string>>& extra) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    bool overridden = false;
    for (const auto& [name, value] : extra) overridden |= text.starts_with(name + "=");
    if (!overridden) variables.push_back(text);
  }
  for (const auto& [name, value] : extra) variables.push_back(name + "=" + value);
  return variables;
}

// Starts the program with both outputs on the pipe.
absl::StatusOr<pid_t> Spawn(std::vector<std::string> argv, std::vector<std::string> environment,
                            int output_fd) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output_fd, STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0].c_str(), &actions, nullptr, Pointers(argv).data(),
                                 Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return NotFound("cannot start {}: {}", argv[0], std::strerror(error));
  return pid;
}

// Collects the program's output until it closes it.
std::string ReadUntilClosed(int fd, const ProcessOptions& options) {
  std::string output;
  std::array<char, 4096> buffer{};
  while (true) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(options.tick)));
    if (options.on_tick) options.on_tick();
    if (ready <= 0) continue;
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return output;
    output.append(buffer.data(), static_cast<std::size_t>(count));
    if (output.size() > kMaxOutput) output.erase(0, output.size() - kMaxOutput);
  }
}

}  // namespace

absl::StatusOr<ProcessResult> RunProcess(const std::vector<std::string>& argv,
                                         const ProcessOptions& options) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Internal("no pipe: {}", std::strerror(errno));
  const auto pid = Spawn(argv, EnvironmentWith(options.extra_environment), ends[1]);
  close(ends[1]);
  ProcessResult result;
  if (pid.ok()) result.output = ReadUntilClosed(ends[0], options);
  close(ends[0]);
  if (!pid.ok()) return pid.status();
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace quire::cli
