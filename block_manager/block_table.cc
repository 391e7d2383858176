#include "block_manager/block_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire::block_manager {

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  Clear();
  block_shift_ = other.block_shift_;
  first_position_ = std::exchange(other.first_position_, 0);
  refs_.swap(other.refs_);
  ids_.swap(other.ids_);
  return *this;
}

void BlockTable::StartAt(std::int32_t position) {
  QUIRE_DCHECK(empty() && position % block_size() == 0);
  first_position_ = position;
}

void BlockTable::Append(BlockRef block) {
  ids_.push_back(block.id());
  refs_.push_back(std::move(block));
}

BlockRef BlockTable::Replace(std::int32_t index, BlockRef block) {
  const auto i = static_cast<std::size_t>(index);
  ids_[i] = block.id();
  return std::exchange(refs_[i], std::move(block));
}

BlockTable BlockTable::Fork() const {
  BlockTable fork(block_size());
  fork.first_position_ = first_position_;
  fork.ids_ = ids_;
  fork.refs_.reserve(refs_.size());
  for (const BlockRef& ref : refs_) fork.refs_.push_back(ref.Share());
  return fork;
}

std::int32_t BlockTable::SlideTo(std::int32_t position) {
  const std::int32_t count = std::clamp(index_of(position), 0, size());
  for (std::int32_t i = count; i-- > 0;) refs_[static_cast<std::size_t>(i)] = BlockRef();
  refs_.erase(refs_.begin(), refs_.begin() + count);
  ids_.erase(ids_.begin(), ids_.begin() + count);
  first_position_ += count << block_shift_;
  return count;
}

void BlockTable::Clear() {
  while (!refs_.empty()) refs_.pop_back();
  ids_.clear();
  first_position_ = 0;
}

}  // namespace quire::block_manager
