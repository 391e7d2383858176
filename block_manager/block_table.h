// The ordered blocks of one sequence: slot i of block b holds position first_position + b *
// block_size + i.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "block_manager/block_pool.h"

namespace quire::block_manager {

// Ownership: owns one share of each of its blocks, given back from the tail to the head, so that a
// sequence's tail is evicted before the head without which it is useless.
// Thread: the engine thread only.
class BlockTable {
 public:
  // REQUIRES: block_size is a power of two.
  explicit BlockTable(std::int32_t block_size)
      : block_shift_(std::countr_zero(static_cast<std::uint32_t>(block_size))) {}
  BlockTable(BlockTable&&) = default;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable() { Clear(); }

  std::span<const BlockId> blocks() const { return ids_; }
  std::int32_t size() const { return static_cast<std::int32_t>(ids_.size()); }
  bool empty() const { return ids_.empty(); }
  BlockId operator[](std::int32_t index) const { return ids_[static_cast<std::size_t>(index)]; }

  std::int32_t block_size() const { return 1 << block_shift_; }
  std::int32_t first_position() const { return first_position_; }  // A multiple of block_size.
  // The first position without a slot.
  std::int32_t end_position() const { return position_of(size()); }
  // The index of the block of `position`, which need not exist yet.
  std::int32_t index_of(std::int32_t position) const {
    return (position - first_position_) >> block_shift_;
  }

  // The first position of the block at `index`.
  std::int32_t position_of(std::int32_t index) const {
    return first_position_ + (index << block_shift_);
  }

  // Makes an empty table begin at a position that its block size divides.
  void StartAt(std::int32_t position);
  void Append(BlockRef block);
  // Puts `block` in the place of another and returns that one.
  BlockRef Replace(std::int32_t index, BlockRef block);
  // A second table that shares all blocks.
  BlockTable Fork() const;
  // Gives back the blocks wholly left of `position`, but never beyond end_position. Returns how
  // many.
  std::int32_t SlideTo(std::int32_t position);
  // Gives everything back; the table starts at position 0 again.
  void Clear();

 private:
  std::int32_t block_shift_;  // log2 of the block size: a step divides positions often.
  std::int32_t first_position_ = 0;
  std::vector<BlockId> ids_;  // ids_[i] == refs_[i].id(): the contiguous view for kernels.
  std::vector<BlockRef> refs_;
};

}  // namespace quire::block_manager
