#include "scheduler/prefixes_in_flight.h"

#include <algorithm>

namespace quire::scheduler {

void PrefixesInFlight::Add(const Sequence* sequence) {
  if (!IsComputing(*sequence, WholeBlocks(sequence->num_tokens()))) return;
  entries_.push_back({sequence->first_block_hash, sequence});
}

PrefixesInFlight::Prefix PrefixesInFlight::Find(const Sequence& waiting) const {
  Prefix best;
  // One token at least is left to compute, so the block of the last one is of no use.
  const std::int32_t usable = WholeBlocks(waiting.num_tokens() - 1);
  int compared = 0;
  // The newest first: the copies of one request come together.
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->first_block_hash != waiting.first_block_hash) continue;
    const Sequence& candidate = *entry->sequence;
    const std::int32_t limit = std::min(usable, WholeBlocks(candidate.num_tokens()));
    if (limit <= best.num_tokens || !IsComputing(candidate, limit)) continue;
    if (candidate.priority > waiting.priority) continue;
    if (candidate.blocks.salt() != waiting.blocks.salt()) continue;
    if (++compared > kMaxCompared) break;
    const auto [end, other_end] = std::mismatch(
        waiting.tokens.begin(), waiting.tokens.begin() + limit, candidate.tokens.begin());
    const std::int32_t common =
        WholeBlocks(static_cast<std::int32_t>(end - waiting.tokens.begin()));
    if (common > best.num_tokens && IsComputing(candidate, common)) best = {&candidate, common};
  }
  return best;
}

}  // namespace quire::scheduler
