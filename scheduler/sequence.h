// What the scheduler knows of one sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "block_manager/sequence_blocks.h"

namespace quire::scheduler {

struct Sequence {
  SequenceId id;
  std::vector<SequenceId> pending_forks = {};  // Branches that fork when the prompt is computed.
  std::vector<TokenId> tokens;                 // All known tokens: prompt, then output.
  std::int32_t max_total_tokens = 0;
  std::int32_t priority = 0;  // Lower is more urgent; 0 for all under Policy::kFcfs.
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();
  bool bypass_prefix_cache = false;
  block_manager::SequenceBlocks blocks;

  bool running = false;
  bool was_admitted = false;
  // Has yielded a token since it was last admitted, so all but its newest token are computed.
  bool decoding = false;
  // Was preempted and has not yielded a token since: goes first in its class, and once it runs
  // again cannot be a victim.
  bool resuming = false;
  std::int32_t times_overtaken = 0;
  std::int32_t max_computed_tokens = 0;  // Before any preemption; what lies below is recomputed.

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t num_computed_tokens() const { return blocks.num_computed_tokens(); }
  std::int32_t num_uncomputed_tokens() const { return num_tokens() - num_computed_tokens(); }
  // Running slots it needs.
  std::int32_t num_branches() const { return 1 + static_cast<std::int32_t>(pending_forks.size()); }
};

}  // namespace quire::scheduler
