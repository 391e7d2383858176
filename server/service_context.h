// What every service needs: the parts of a Server, borrowed; they outlive all calls.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "server/emitter.h"
#include "server/gate.h"
#include "server/offload.h"
#include "server/timer_thread.h"

namespace quire::server {

struct ServiceContext {
  Gate* gate = nullptr;
  Emitter* emitter = nullptr;
  TimerThread* timers = nullptr;
  Offload* text_jobs = nullptr;    // Tokenize, Detokenize: heavy on the CPU.
  Offload* engine_jobs = nullptr;  // Calls that wait for the engine thread, for seconds at most.
  Offload* drain_jobs = nullptr;   // Drain, which waits as long as it was told to.
  Clock* clock = nullptr;          // The engine's.
  std::int64_t max_unread_tokens = 0;
  absl::Duration cut_grace;
};

}  // namespace quire::server
