// Recounting a BlockManager from scratch.
#include <algorithm>

#include "base/status.h"
#include "block_manager/block_manager.h"

namespace quire::block_manager {

absl::Status BlockManager::Audit(std::span<const SequenceBlocks* const> sequences) const {
  QUIRE_RETURN_IF_ERROR(pool_.Audit());
  QUIRE_RETURN_IF_ERROR(index_.Audit());
  QUIRE_RETURN_IF_ERROR(leases_.Audit());
  std::vector<std::int32_t> owners(static_cast<std::size_t>(capacity()));
  for (const SequenceBlocks* sequence : sequences) {
    for (const BlockId id : sequence->table_.blocks()) {
      ++owners[static_cast<std::size_t>(id.value())];
    }
    QUIRE_RETURN_IF_ERROR(AuditSequence(*sequence));
  }
  for (std::int32_t i = 0; i < capacity(); ++i) {
    const BlockId id{i};
    if (owners[static_cast<std::size_t>(i)] != pool_.owners(id)) {
      return Internal("block {} is in {} tables but has {} owners", i,
                      owners[static_cast<std::size_t>(i)], pool_.owners(id));
    }
    if (index_.contains(id) != pool_.reusable(id)) {
      return Internal("block {} is {}indexed but {}reusable", i, index_.contains(id) ? "" : "not ",
                      pool_.reusable(id) ? "" : "not ");
    }
    if (index_.contains(id) && pool_.filled(id) != block_size_) {
      return Internal("block {} is indexed with {} filled slots", i, pool_.filled(id));
    }
  }
  return absl::OkStatus();
}

absl::Status BlockManager::AuditSequence(const SequenceBlocks& sequence) const {
  const BlockTable& table = sequence.table_;
  if (sequence.num_computed_tokens_ > table.end_position()) {
    return Internal("{} tokens are computed in {} slots", sequence.num_computed_tokens_,
                    table.end_position());
  }
  for (std::int32_t i = 0; i < table.size(); ++i) {
    const std::int32_t begin = table.first_position() + i * block_size_;
    const std::int32_t filled = std::clamp(sequence.num_computed_tokens_ - begin, 0, block_size_);
    if (pool_.filled(table[i]) != filled) {
      return Internal("block {} has {} filled slots, but its sequence computed {} of them",
                      table[i].value(), pool_.filled(table[i]), filled);
    }
    const bool should_be_indexed = begin / block_size_ < sequence.num_indexed_blocks_;
    if (index_.contains(table[i]) != should_be_indexed) {
      return Internal("block {} is {}indexed", table[i].value(), should_be_indexed ? "not " : "");
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::block_manager
