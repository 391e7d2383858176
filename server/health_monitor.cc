#include "server/health_monitor.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "base/status.h"

namespace quire::server {

namespace {

// Between two checks of a process that runs; they come a few times a second.
constexpr absl::Duration kPause = absl::Seconds(5);

}  // namespace

std::string_view HealthStateName(HealthState state) {
  switch (state) {
    case HealthState::kLoading:
      return "loading";
    case HealthState::kServing:
      return "serving";
    case HealthState::kDraining:
      return "draining";
    case HealthState::kUnhealthy:
      return "unhealthy";
    case HealthState::kStuck:
      return "stuck";
  }
  return "unknown";
}

HealthMonitor::HealthMonitor(const ServiceContext& services, absl::Duration stuck_after,
                             std::function<void(HealthState)> on_change)
    : services_(services),
      stuck_after_(stuck_after),
      on_change_(std::move(on_change)),
      last_progress_(services.clock->Now()),
      last_check_(last_progress_) {}

void HealthMonitor::Check() {
  HealthState now_state;
  {
    absl::MutexLock lock(&mutex_);
    now_state = Evaluate();
    if (now_state != state_) {
      spdlog::info("health: {}", HealthStateName(now_state));
      state_ = now_state;
      on_change_(now_state);
    }
  }
  if (now_state == HealthState::kStuck) {
    services_.emitter->FailAll(
        Internal("the engine has finished no step for {}", absl::FormatDuration(stuck_after_)));
  }
}

HealthState HealthMonitor::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

HealthState HealthMonitor::Evaluate() {
  const absl::Time now = services_.clock->Now();
  const Gate::Phase phase = services_.gate->phase();
  if (phase == Gate::Phase::kLoading) return HealthState::kLoading;
  const auto pass = services_.gate->Enter(Gate::Kind::kControl);
  if (!pass.ok()) return HealthState::kDraining;

  const auto stats = pass->engine().stats();
  const bool published = stats->sequence_number != last_snapshot_;
  last_snapshot_ = stats->sequence_number;
  const std::uint64_t progress = pass->engine().progress();
  const bool computing = progress != last_computed_;
  last_computed_ = progress;
  // Stopped with a debugger or SIGSTOP, the engine could not work either.
  const absl::Duration since_check = now - std::exchange(last_check_, now);
  if (since_check > kPause) last_progress_ += since_check;
  if (published || computing || !services_.emitter->has_readers()) last_progress_ = now;
  if (!stats->healthy) return HealthState::kUnhealthy;
  // A recovered engine proves itself with a new snapshot; having nothing to do proves nothing.
  if (state_ == HealthState::kStuck && !published) return HealthState::kStuck;
  if (now - last_progress_ > stuck_after_) return HealthState::kStuck;
  return phase == Gate::Phase::kServing ? HealthState::kServing : HealthState::kDraining;
}

}  // namespace quire::server
