#include "engine/stats_recorder.h"

#include <utility>
#include <vector>

namespace quire::engine {
namespace {

// vLLM's bucket edges with finer ones in front: a small model's steps take a millisecond.
Histogram FirstTokenHistogram() {
  return MakeHistogram({.0005, .001, .002, .005, .01, .02, .04, .06, .08, .1,  .25, .5,
                        .75,   1,    2.5,  5,    7.5, 10,  20,  40,  80,  160, 640, 2560});
}
Histogram GapHistogram() {
  return MakeHistogram({.0005, .001, .002, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                        .4,    .5,   .75,  1,    2.5, 5,    7.5, 10,   20, 40,  80});
}
Histogram IntervalHistogram() {
  return MakeHistogram({.0005, .001, .002, .005, .01, .02, .05, .1,  .2,   .3,
                        .5,    .8,   1,    1.5,  2,   2.5, 5,   10,  15,   20,
                        30,    40,   50,   60,   120, 240, 480, 960, 1920, 7680});
}
Histogram BatchHistogram() {
  return MakeHistogram({1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384});
}

// 1, 2, 5, 10, 20, 50, … up to `max`.
Histogram LengthHistogram(std::int32_t max) {
  std::vector<double> bounds;
  for (double decade = 1; decade <= max; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (decade * step <= max) bounds.push_back(decade * step);
    }
  }
  return MakeHistogram(std::move(bounds));
}

}  // namespace

StatsRecorder::StatsRecorder(std::int32_t max_model_len, absl::Time now) {
  stats_.last_step_finished = now;
  stats_.time_to_first_token = FirstTokenHistogram();
  stats_.inter_token_latency = GapHistogram();
  stats_.step_time = GapHistogram();
  stats_.e2e_latency = stats_.queue_time = stats_.prefill_time = stats_.decode_time =
      IntervalHistogram();
  stats_.iteration_tokens = BatchHistogram();
  stats_.request_prompt_tokens = stats_.request_generation_tokens = LengthHistogram(max_model_len);
}

void StatsRecorder::RequestStarted(absl::Duration queue, std::int64_t prompt_tokens,
                                   std::int64_t cached_tokens) {
  stats_.queue_time.Observe(absl::ToDoubleSeconds(queue));
  stats_.prompt_tokens += prompt_tokens;
  stats_.cached_prompt_tokens += cached_tokens;
}

void StatsRecorder::FirstToken(absl::Duration time_to_first_token, absl::Duration prefill) {
  stats_.time_to_first_token.Observe(absl::ToDoubleSeconds(time_to_first_token));
  stats_.prefill_time.Observe(absl::ToDoubleSeconds(prefill));
}

void StatsRecorder::TokenGap(absl::Duration gap) {
  stats_.inter_token_latency.Observe(absl::ToDoubleSeconds(gap));
}

void StatsRecorder::RequestFinished(absl::Duration end_to_end, absl::Duration decode,
                                    std::int64_t prompt_tokens, std::int64_t generation_tokens) {
  stats_.e2e_latency.Observe(absl::ToDoubleSeconds(end_to_end));
  stats_.decode_time.Observe(absl::ToDoubleSeconds(decode));
  stats_.request_prompt_tokens.Observe(static_cast<double>(prompt_tokens));
  stats_.request_generation_tokens.Observe(static_cast<double>(generation_tokens));
}

void StatsRecorder::StepFinished(absl::Duration took, const StepUse& use) {
  const double seconds = absl::ToDoubleSeconds(took);
  stats_.step_time.Observe(seconds);
  stats_.iteration_tokens.Observe(static_cast<double>(use.num_tokens));
  const block_manager::BlockStats& blocks = use.blocks;
  // Only full blocks are leased.
  const std::int64_t useful =
      blocks.useful_slots + use.num_tokens + blocks.leased * blocks.block_size;
  stats_.reserved_block_seconds += seconds * static_cast<double>(blocks.active + blocks.leased);
  stats_.useful_slot_seconds += seconds * static_cast<double>(useful);
  stats_.batch_seconds += seconds * static_cast<double>(use.num_sequences);
}

EngineStats StatsRecorder::Snapshot(absl::Time now, const RequestCounts& requests,
                                    const block_manager::BlockStats& blocks,
                                    const scheduler::SchedulerStats& scheduler, bool healthy,
                                    bool draining) const {
  EngineStats stats = stats_;
  stats.time = now;
  stats.last_step_finished = now;
  stats.blocks = blocks;
  stats.scheduler = scheduler;
  stats.requests_received = requests.received;
  stats.requests_queued = requests.queued;
  stats.requests_running = requests.running;
  stats.finished_stop = requests.finished_stop;
  stats.finished_length = requests.finished_length;
  stats.cancelled = requests.cancelled;
  stats.deadline_exceeded = requests.deadline_exceeded;
  stats.refused = requests.refused;
  stats.failed = requests.failed;
  stats.healthy = healthy;
  stats.draining = draining;
  return stats;
}

}  // namespace quire::engine
