// Counters and histograms of the engine thread, from which each published snapshot is made.
//
// Definitions (reference: vLLM's, docs/architecture.md "Metrics"): queue = first scheduled -
// arrival; prefill = first token - first scheduled; decode = last - first token; time to first
// token = first token - arrival; inter-token latency = the gap between two tokens of one branch.
// Preemptions are inside all of them. Per request there is one observation of each (of the first
// branch's first token, of the last branch's last), except the inter-token latency.
//
// Thread: the engine thread.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "engine/request_ledger.h"
#include "engine/stats.h"

namespace quire::engine {

class StatsRecorder {
 public:
  StatsRecorder(std::int32_t max_model_len, absl::Time now);

  void RequestStarted(absl::Duration queue, std::int64_t prompt_tokens, std::int64_t cached_tokens);
  void FirstToken(absl::Duration time_to_first_token, absl::Duration prefill);
  void TokenGap(absl::Duration gap);
  void TokenGenerated() { ++stats_.generation_tokens; }
  // It ended with OK.
  void RequestFinished(absl::Duration end_to_end, absl::Duration decode, std::int64_t prompt_tokens,
                       std::int64_t generation_tokens);
  struct StepUse {
    std::int64_t num_tokens = 0;
    std::int64_t num_sequences = 0;
    block_manager::BlockStats blocks = {};  // While it computed.
  };
  void StepFinished(absl::Duration took, const StepUse& use);

  EngineStats Snapshot(absl::Time now, const RequestCounts& requests,
                       const block_manager::BlockStats& blocks,
                       const scheduler::SchedulerStats& scheduler, bool healthy,
                       bool draining) const;

 private:
  EngineStats stats_;
};

}  // namespace quire::engine
