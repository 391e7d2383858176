#include <algorithm>

#include "block_manager/block_manager.h"

namespace quire::block_manager {

void ExtendDemand::Clear() {
  num_blocks_ = 0;
  writers_.clear();
}

void ExtendDemand::Add(const SequenceBlocks& sequence, std::int32_t end_position) {
  const BlockTable& table = sequence.table();
  const std::int32_t end = table.index_of(end_position - 1) + 1;
  const std::int32_t end_of_old = std::min(end, table.size());
  num_blocks_ += end - end_of_old;
  for (std::int32_t i = table.index_of(sequence.num_computed_tokens()); i < end_of_old; ++i) {
    const BlockId id = table[i];
    if (!manager_->IsShared(id)) continue;
    const bool is_last_owner = ++writers_[id] == manager_->pool_.owners(id);
    if (!is_last_owner) ++num_blocks_;
  }
}

}  // namespace quire::block_manager
