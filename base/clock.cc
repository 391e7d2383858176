#include "base/clock.h"

#include <chrono>

namespace quire {
namespace {

// CLOCK_MONOTONIC shown as an absl::Time: differences are exact, the origin is meaningless.
class SteadyClock final : public Clock {
 public:
  absl::Time Now() const override {
    return absl::UnixEpoch() +
           absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace

Clock& Clock::Real() {
  static SteadyClock clock;
  return clock;
}

}  // namespace quire
