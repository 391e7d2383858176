#include "engine/mailbox.h"

#include <utility>

namespace quire::engine {

bool Mailbox::Send(Mail mail) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  mail_.push_back(std::move(mail));
  return true;
}

void Mailbox::Poke() {
  absl::MutexLock lock(&mutex_);
  poked_ = true;
}

void Mailbox::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

bool Mailbox::Wait(absl::Duration timeout, std::vector<Mail>& out) {
  out.clear();
  absl::MutexLock lock(&mutex_);
  if (timeout > absl::ZeroDuration()) {
    mutex_.AwaitWithTimeout(absl::Condition(this, &Mailbox::Awake), timeout);
  }
  std::swap(mail_, out);
  poked_ = false;
  return !closed_;
}

}  // namespace quire::engine
