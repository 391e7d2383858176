#include "server/gate.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace quire::server {

void Gate::Open(ServedModel model) {
  absl::MutexLock lock(&mutex_);
  QUIRE_CHECK(phase_ == Phase::kLoading);
  QUIRE_CHECK(model.engine != nullptr);
  model_ = std::move(model);
  phase_ = Phase::kServing;
}

absl::StatusOr<Gate::Pass> Gate::Enter(Kind kind) {
  absl::MutexLock lock(&mutex_);
  switch (phase_) {
    case Phase::kLoading:
      return Unavailable("the model is still loading");
    case Phase::kServing:
      break;
    case Phase::kDraining:
      if (kind == Kind::kControl) break;
      return Unavailable("the server is draining and takes no new requests");
    case Phase::kClosed:
      return Unavailable("the server is shutting down");
  }
  ++(kind == Kind::kGeneration ? generations_ : controls_);
  return Pass(this, kind);
}

void Gate::StartDraining() {
  absl::MutexLock lock(&mutex_);
  if (phase_ == Phase::kServing) phase_ = Phase::kDraining;
}

bool Gate::WaitForGenerations(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(
                              +[](Gate* gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(gate->mutex_) {
                                return gate->hurry_ || gate->generations_ == 0;
                              },
                              this),
                          timeout);
  return generations_ == 0;
}

bool Gate::WaitForLastGenerations(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(
                                     +[](Gate* gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(gate->mutex_) {
                                       return gate->generations_ == 0;
                                     },
                                     this),
                                 timeout);
}

void Gate::HurryUp() {
  absl::MutexLock lock(&mutex_);
  hurry_ = true;
}

void Gate::Close() {
  absl::MutexLock lock(&mutex_);
  phase_ = Phase::kClosed;
}

void Gate::WaitUntilEmpty() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](Gate* gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(gate->mutex_) {
        return gate->generations_ == 0 && gate->controls_ == 0;
      },
      this));
}

Gate::Phase Gate::phase() const {
  absl::MutexLock lock(&mutex_);
  return phase_;
}

void Gate::Leave(Kind kind) {
  absl::MutexLock lock(&mutex_);
  --(kind == Kind::kGeneration ? generations_ : controls_);
}

}  // namespace quire::server
