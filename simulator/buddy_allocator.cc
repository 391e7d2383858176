#include "simulator/buddy_allocator.h"

#include <bit>

#include "base/check.h"

namespace quire::simulator {
namespace {

int OrderOf(std::int64_t size) {
  return std::countr_zero(std::bit_ceil(static_cast<std::uint64_t>(size)));
}

}  // namespace

BuddyAllocator::BuddyAllocator(std::int64_t capacity) : capacity_(capacity) {
  QUIRE_CHECK(capacity >= 1);
  free_.resize(static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(capacity))));
  // The largest piece first, so that each lies at a multiple of its length.
  std::int64_t offset = 0;
  for (auto order = free_.size(); order-- > 0;) {
    const std::int64_t size = std::int64_t{1} << order;
    if ((capacity & size) == 0) continue;
    free_[order].insert(offset);
    offset += size;
  }
}

bool BuddyAllocator::CanHold(std::int64_t size) const {
  return static_cast<std::size_t>(OrderOf(size)) < free_.size();
}

std::optional<BuddyAllocator::Piece> BuddyAllocator::Allocate(std::int64_t size) {
  const int wanted = OrderOf(size);
  for (auto order = static_cast<std::size_t>(wanted); order < free_.size(); ++order) {
    if (free_[order].empty()) continue;
    const std::int64_t offset = *free_[order].begin();
    free_[order].erase(free_[order].begin());
    for (auto half = order; half-- > static_cast<std::size_t>(wanted);) {
      free_[half].insert(offset + (std::int64_t{1} << half));
    }
    return Piece{offset, wanted};
  }
  return std::nullopt;
}

void BuddyAllocator::Free(const Piece& piece) {
  std::int64_t offset = piece.offset;
  auto order = static_cast<std::size_t>(piece.order);
  while (free_[order].erase(offset ^ (std::int64_t{1} << order)) == 1) {
    offset &= ~(std::int64_t{1} << order);
    ++order;
  }
  free_[order].insert(offset);
}

std::int64_t BuddyAllocator::num_free() const {
  std::int64_t free = 0;
  for (std::size_t order = 0; order < free_.size(); ++order) {
    free += static_cast<std::int64_t>(free_[order].size()) << order;
  }
  return free;
}

}  // namespace quire::simulator
