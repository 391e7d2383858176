// The blocks of one sequence, how far they are computed, and how far they are indexed.
#pragma once

#include <cstdint>
#include <utility>

#include "block_manager/block_table.h"
#include "block_manager/cache_salt.h"
#include "block_manager/content_history.h"
#include "block_manager/prefix_index.h"

namespace quire::block_manager {

// Made and changed by a BlockManager alone, which must outlive it; destroying it gives the blocks
// back.
// Invariant: positions below num_computed_tokens() have a slot (unless a window slid past them);
// the blocks of positions below num_indexed_blocks * block_size are the ones in the prefix index.
class SequenceBlocks {
 public:
  const BlockTable& table() const { return table_; }
  std::int32_t num_computed_tokens() const { return num_computed_tokens_; }
  SaltId salt() const { return salt_.id(); }

 private:
  friend class BlockManager;
  SequenceBlocks(SaltRef salt, BlockTable table)
      : table_(std::move(table)), salt_(std::move(salt)) {}

  // In the order of use: a decoding step ends with the table.
  std::int32_t num_computed_tokens_ = 0;
  std::int32_t num_indexed_blocks_ = 0;  // Counted from position 0.
  BlockTable table_;
  BlockIdentity last_indexed_ = kNoParent;  // The parent of the next block to index.
  ContentHash indexed_content_ = kEmptyPrefix;
  SaltRef salt_;
};

}  // namespace quire::block_manager
