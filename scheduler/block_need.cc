#include "scheduler/block_need.h"

#include <algorithm>

namespace quire::scheduler {

BlockNeed NeedOf(const Sequence& waiting, const block_manager::SlidingWindow& window,
                 const block_manager::BlockManager& blocks) {
  BlockNeed need;
  need.num_blocks = std::max(blocks.BlocksForTokens(waiting.num_tokens(), window),
                             blocks.BlocksForTokens(waiting.reserve_tokens));
  if (waiting.bypass_prefix_cache || window.tokens > 0) return need;
  need.hits = blocks.Match(waiting.blocks, waiting.tokens);
  need.num_blocks -=
      std::ranges::count_if(need.hits, [&blocks](BlockId id) { return blocks.owners(id) > 0; });
  return need;
}

}  // namespace quire::scheduler
