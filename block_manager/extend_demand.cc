#include "base/check.h"
#include "block_manager/block_manager.h"

namespace quire::block_manager {

void ExtendDemand::Clear() {
  num_blocks_ = 0;
  writers_.clear();
}

void ExtendDemand::Add(const SequenceBlocks& sequence, std::int32_t end_position) {
  num_blocks_ += manager_->MissingBlocks(sequence, end_position);
  for (const BlockId id : manager_->WrittenBlocks(sequence, end_position)) {
    if (!manager_->IsShared(id)) continue;
    const bool is_last_owner = ++writers_[id] == manager_->pool_.owners(id);
    if (!is_last_owner) ++num_blocks_;
  }
}

}  // namespace quire::block_manager
