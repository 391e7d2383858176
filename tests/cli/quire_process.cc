#include "quire_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <utility>

namespace quire::cli {
namespace {

std::array<int, 2> Pipe() {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  return ends;
}

}  // namespace

std::vector<nlohmann::json> ProcessEnd::JsonLines() const {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_FALSE(lines.back().is_discarded()) << line;
  }
  return lines;
}

QuireProcess::QuireProcess(std::vector<std::string> arguments, const ProcessSetup& setup) {
  arguments.insert(arguments.begin(), QUIRE_BINARY);
  arguments.insert(arguments.begin(), setup.wrapper.begin(), setup.wrapper.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const auto in = Pipe();
  const auto out = Pipe();
  const auto err = Pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  if (setup.err_path.empty()) {
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, setup.err_path.c_str(), O_WRONLY, 0);
  }
  EXPECT_EQ(posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  for (const int fd : {in[0], out[1], err[1]}) close(fd);
  EXPECT_EQ(write(in[1], setup.input.data(), setup.input.size()),
            static_cast<ssize_t>(setup.input.size()));
  close(in[1]);
  out_reader_ = std::thread([this, fd = out[0]] { Collect(fd, &out_); });
  err_reader_ = std::thread([this, fd = err[0]] { Collect(fd, &err_); });
}

QuireProcess::~QuireProcess() {
  if (pid_ == 0) return;
  Signal(SIGKILL);
  Wait();
}

void QuireProcess::Collect(int fd, Output* output) {
  std::array<char, 4096> chunk{};
  while (true) {
    const ssize_t count = read(fd, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    absl::MutexLock lock(&mutex_);
    if (count <= 0) {
      output->closed = true;
      break;
    }
    output->text.append(chunk.data(), static_cast<std::size_t>(count));
  }
  close(fd);
}

bool QuireProcess::WaitForOutput(const std::string& text) {
  const auto found = [this, &text]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return out_.text.find(text) != std::string::npos || err_.text.find(text) != std::string::npos;
  };
  const auto decided = [this, &found]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return found() || (out_.closed && err_.closed);
  };
  absl::MutexLock lock(&mutex_, absl::Condition(&decided));
  return found();
}

void QuireProcess::Signal(int signal) { kill(pid_, signal); }

std::int64_t QuireProcess::MemoryOf(const std::string& key) const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  for (std::string word; status >> word;) {
    std::int64_t kib = 0;
    if (word == key + ":" && status >> kib) return kib * 1024;
  }
  ADD_FAILURE() << "no " << key;
  return 0;
}

ProcessEnd QuireProcess::Wait() {
  ProcessEnd end;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  out_reader_.join();
  err_reader_.join();
  end.exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  absl::MutexLock lock(&mutex_);
  end.out = out_.text;
  end.err = err_.text;
  return end;
}

ProcessEnd RunBinary(std::vector<std::string> arguments, const std::string& input) {
  return QuireProcess(std::move(arguments), {.input = input}).Wait();
}

}  // namespace quire::cli
