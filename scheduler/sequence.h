// What the scheduler knows of one sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "block_manager/sequence_blocks.h"
#include "block_manager/session_leases.h"
#include "block_manager/sliding_window.h"
#include "scheduler/fair_share.h"

namespace quire::scheduler {

// A waiting sequence's wait for a prefix that a running one is computing.
struct InFlightWait {
  SequenceId awaited = {};
  std::int32_t num_tokens = 0;  // Of the awaited prefix; zero while nothing is awaited.
  std::int32_t num_steps = 0;   // Waited so far.
};

// What a decoding step reads stands first, in few cache lines.
struct Sequence {
  SequenceId id;
  std::vector<TokenId> tokens;  // All known tokens: prompt, then output.
  bool running = false;
  bool was_admitted = false;
  // Has yielded a token since it was last admitted, so all but its newest token are computed, and
  // nobody is left to fork from it.
  bool decoding = false;
  // Was preempted and has not yielded a token since: goes first in its class, and once it runs
  // again cannot be a victim.
  bool resuming = false;
  std::int32_t max_computed_tokens = 0;  // When it was preempted; what lies below is recomputed.
  std::int32_t priority = 0;             // Lower is more urgent; 0 for all under Policy::kFcfs.
  std::int32_t max_total_tokens = 0;
  absl::Time arrival;
  block_manager::SequenceBlocks blocks;

  // Of the queue, of prefills and of the ends.
  std::vector<SequenceId> pending_forks = {};  // Branches that fork when the prompt is computed.
  absl::Time deadline = absl::InfiniteFuture();
  bool bypass_prefix_cache = false;
  Turn turn = {};  // Among new ones of its class; the same for all unless clients share.
  std::int32_t times_overtaken = 0;
  InFlightWait in_flight = {};
  // Of the salt and the first block's tokens, to find sequences with the same beginning.
  std::uint64_t first_block_hash = 0;
  std::int32_t num_cached_on_arrival = 0;  // Of its tokens, what the prefix cache had.
  std::int32_t reserve_tokens = 0;
  std::string client_id = {};
  std::optional<block_manager::SessionKey> session = std::nullopt;

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t num_computed_tokens() const { return blocks.num_computed_tokens(); }
  std::int32_t num_uncomputed_tokens() const { return num_tokens() - num_computed_tokens(); }
  // Whether it may need more blocks while it runs. A prefill got all of its blocks when it was
  // admitted, unless they move along with a window.
  bool AsksForBlocks(const block_manager::SlidingWindow& window) const {
    return decoding || window.tokens > 0;
  }
  // Where the tokens end that the next step computes at most.
  std::int32_t NextEnd(const block_manager::SlidingWindow& window) const {
    if (decoding || window.tokens == 0) return num_tokens();
    return std::min(num_tokens(), num_computed_tokens() + window.max_chunk);
  }
  // Running slots it needs.
  std::int32_t num_branches() const { return 1 + static_cast<std::int32_t>(pending_forks.size()); }
};

}  // namespace quire::scheduler
