// Decides whether the server is fit to serve, out of the gate's phase and the engine's heartbeat,
// and tells whoever asks: grpc.health.v1 through a listener, HTTP through state().
//
// The engine is stuck when requests are live and it has neither published anything nor computed a
// layer for `stuck_after`; then their calls are ended (they would hang for ever). It may recover.
// Thread: Check on one thread at a time is enough but not required; state() on any.
#pragma once

#include <functional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/service_context.h"

namespace quire::server {

enum class HealthState { kLoading, kServing, kDraining, kUnhealthy, kStuck };
std::string_view HealthStateName(HealthState state);

class HealthMonitor {
 public:
  // `on_change` is called with every new state, one call at a time.
  HealthMonitor(const ServiceContext& services, absl::Duration stuck_after,
                std::function<void(HealthState)> on_change);

  // Looks again. Call it a few times a second, and when something has changed.
  void Check();
  HealthState state() const;

 private:
  HealthState Evaluate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ServiceContext& services_;
  const absl::Duration stuck_after_;
  const std::function<void(HealthState)> on_change_;

  mutable absl::Mutex mutex_;
  HealthState state_ ABSL_GUARDED_BY(mutex_) = HealthState::kLoading;
  std::uint64_t last_snapshot_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_computed_ ABSL_GUARDED_BY(mutex_) = 0;  // Engine::progress.
  // When the engine last published or computed something, or had nothing to do.
  absl::Time last_progress_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_check_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace quire::server
