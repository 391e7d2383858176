// What the engine publishes after every step: immutable, one consistent picture.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "block_manager/stats.h"
#include "scheduler/scheduler.h"

namespace quire::engine {

// A cumulative histogram with fixed upper bounds (the last bucket is +Inf).
struct Histogram {
  std::vector<double> bounds;        // Ascending.
  std::vector<std::int64_t> counts;  // bounds.size() + 1, not cumulative.
  double sum = 0;
  std::int64_t count = 0;
  void Observe(double value);  // A value on a bound belongs to the bucket below it.
};

Histogram MakeHistogram(std::vector<double> bounds);

struct EngineStats {
  std::uint64_t sequence_number = 0;  // Rises by one per published snapshot.
  absl::Time time;                    // On the engine's Clock.
  block_manager::BlockStats blocks;
  scheduler::SchedulerStats scheduler;

  // Requests, since start: received == queued + running + the sum of the outcomes.
  std::int64_t requests_received = 0;
  std::int64_t requests_queued = 0;  // Accepted by Submit, not yet scheduled.
  std::int64_t requests_running = 0;
  std::int64_t finished_stop = 0;
  std::int64_t finished_length = 0;
  std::int64_t cancelled = 0;
  std::int64_t deadline_exceeded = 0;
  std::int64_t refused = 0;  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE, ….
  std::int64_t failed = 0;   // INTERNAL.

  std::int64_t prompt_tokens = 0;
  std::int64_t cached_prompt_tokens = 0;
  std::int64_t generation_tokens = 0;

  // Seconds, except iteration_tokens.
  Histogram time_to_first_token, inter_token_latency, e2e_latency, queue_time, prefill_time,
      decode_time, step_time, iteration_tokens, request_prompt_tokens, request_generation_tokens;

  // Integrals over the time of steps: divided by step_time.sum they are means.
  double reserved_block_seconds = 0;  // Blocks that sequences hold or sessions lease.
  double useful_slot_seconds = 0;     // Their slots with a token that is or was computed.
  double batch_seconds = 0;           // Sequences that the step computes.

  absl::Time last_step_finished;  // Heartbeat; also moves while idle.
  bool healthy = true;            // False: the engine cannot go on (see the log).
  bool draining = false;
};

// Every block and who holds it.
struct BlockMap {
  enum class State : std::uint8_t { kFree, kCached, kActive };
  std::vector<State> states;         // [capacity]
  std::vector<std::int32_t> owners;  // [capacity] owners of each block
  struct Sequence {
    std::string request_id;
    std::int32_t index = 0;
    std::int32_t num_tokens = 0;
    std::int32_t num_computed_tokens = 0;
    std::vector<BlockId> blocks;
  };
  std::vector<Sequence> sequences;
  struct Session {
    std::string session_id;
    std::int32_t num_tokens = 0;
    absl::Duration expires_in;
    std::vector<BlockId> blocks;
  };
  std::vector<Session> sessions;    // Oldest lease first.
  block_manager::BlockStats stats;  // Of the same moment.
};

}  // namespace quire::engine
