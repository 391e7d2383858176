// Contiguous slots by the buddy method, as the paper assumes of Orca: every piece is a power of two
// long and lies at a multiple of its length; what is not used of it is lost.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace quire::simulator {

class BuddyAllocator {
 public:
  // REQUIRES: capacity >= 1; it need not be a power of two.
  explicit BuddyAllocator(std::int64_t capacity);

  struct Piece {
    std::int64_t offset = 0;
    int order = 0;  // 2^order slots.
    std::int64_t size() const { return std::int64_t{1} << order; }
  };
  // A piece of at least `size` slots: the smallest free one that does, split down to the power of
  // two. Nothing if there is none.
  std::optional<Piece> Allocate(std::int64_t size);
  // Whether Allocate could ever give so much.
  bool CanHold(std::int64_t size) const;
  // Gives a piece back; it merges with its buddy when both are free.
  void Free(const Piece& piece);

  std::int64_t capacity() const { return capacity_; }
  std::int64_t num_free() const;

 private:
  const std::int64_t capacity_;
  std::vector<std::set<std::int64_t>> free_;  // Offsets, by order.
};

}  // namespace quire::simulator
