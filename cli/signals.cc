#include "cli/signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace quire::cli {
namespace {

sigset_t HandledSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

SignalListener::SignalListener(Handler handler) : handler_(std::move(handler)) {
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  QUIRE_CHECK(signal_fd_ >= 0 && stop_fd_ >= 0);
  thread_ = std::thread([this] { Run(); });
}

SignalListener::~SignalListener() {
  const std::uint64_t one = 1;
  QUIRE_CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void SignalListener::Run() {
  int count = 0;
  while (true) {
    std::array<pollfd, 2> waiting = {{{.fd = signal_fd_, .events = POLLIN, .revents = 0},
                                      {.fd = stop_fd_, .events = POLLIN, .revents = 0}}};
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    if (waiting[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
    handler_(static_cast<int>(info.ssi_signo), ++count);
  }
}

void ExitNow(int code) { std::_Exit(code); }

}  // namespace quire::cli
