// What a waiting sequence would take out of the pool if it were admitted now.
#pragma once

#include <cstdint>
#include <vector>

#include "block_manager/block_manager.h"
#include "scheduler/sequence.h"

namespace quire::scheduler {

struct BlockNeed {
  std::int64_t num_blocks = 0;  // Out of the available ones; hits that have owners are for free.
  std::vector<BlockId> hits;    // By ordinal.
};

// With a window the hits are left out, so that the need is an upper bound.
// Cost: as BlockManager::Match.
BlockNeed NeedOf(const Sequence& waiting, const block_manager::SlidingWindow& window,
                 const block_manager::BlockManager& blocks);

}  // namespace quire::scheduler
