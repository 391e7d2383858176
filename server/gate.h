// Who may use the engine, and until when: the life of a server in four phases, and the calls that
// are inside.
//
// Thread: any. A Pass may be released on another thread than the one it was given on.
// Invariant: while a Pass lives, the model it shows is valid; after WaitUntilEmpty nobody uses the
// engine through this gate.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/server.h"

namespace quire::server {

class Gate {
 public:
  enum class Phase { kLoading, kServing, kDraining, kClosed };
  // Generations are refused as soon as draining starts, control calls (statistics, abort) only
  // when the gate is closed.
  enum class Kind { kGeneration, kControl };

  // Proof that one call is inside. Move-only; an empty one is inside of nothing.
  class Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept { *this = std::move(other); }
    Pass& operator=(Pass&& other) noexcept {
      Release();
      gate_ = std::exchange(other.gate_, nullptr);
      kind_ = other.kind_;
      return *this;
    }
    ~Pass() { Release(); }

    bool inside() const { return gate_ != nullptr; }
    // REQUIRES: inside(), as the next two do.
    const ServedModel& model() const { return gate_->model_; }
    engine::Engine& engine() const { return *gate_->model_.engine; }
    bool draining() const { return gate_->phase() != Phase::kServing; }
    void Release() {
      if (gate_ != nullptr) std::exchange(gate_, nullptr)->Leave(kind_);
    }

   private:
    friend class Gate;
    Pass(Gate* gate, Kind kind) : gate_(gate), kind_(kind) {}
    Gate* gate_ = nullptr;
    Kind kind_ = Kind::kControl;
  };

  // kLoading -> kServing. REQUIRES: the phase is kLoading.
  void Open(ServedModel model);
  // UNAVAILABLE, saying why, when this kind of call may not enter.
  absl::StatusOr<Pass> Enter(Kind kind);
  // -> kDraining. Idempotent; a gate that was never opened stays shut.
  void StartDraining();
  // Waits until no generation is inside, HurryUp was called, or `timeout` passed; true in the first
  // case.
  bool WaitForGenerations(absl::Duration timeout);
  void HurryUp();
  // The same, in spite of HurryUp.
  bool WaitForLastGenerations(absl::Duration timeout);
  // -> kClosed, for good.
  void Close();
  void WaitUntilEmpty();

  Phase phase() const;

 private:
  void Leave(Kind kind);

  // Written by Open only, before the first Pass exists.
  ServedModel model_;
  mutable absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kLoading;
  std::int64_t generations_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t controls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hurry_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire::server
