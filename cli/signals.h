// SIGINT and SIGTERM as ordinary calls on a thread of their own.
#pragma once

#include <functional>
#include <thread>

namespace quire::cli {

// Ownership: while one lives, both signals are blocked in the thread that made it and in every
// thread started since. Make it before any other thread. At most one at a time.
class SignalListener {
 public:
  // `count` is 1 for the first signal. Called on the listener's thread; may end the process.
  using Handler = std::function<void(int signal, int count)>;
  explicit SignalListener(Handler handler);
  ~SignalListener();  // Signals act as before again.
  SignalListener(const SignalListener&) = delete;
  SignalListener& operator=(const SignalListener&) = delete;

 private:
  void Run();

  const Handler handler_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

// Ends the process at once, without destructors: what a second signal asks for.
[[noreturn]] void ExitNow(int code);

}  // namespace quire::cli
