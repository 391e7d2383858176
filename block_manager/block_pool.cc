#include "block_manager/block_pool.h"

#include <algorithm>
#include <limits>

#include "base/status.h"

namespace quire::block_manager {

BlockPool::BlockPool(std::int64_t capacity, EvictionObserver* observer)
    : blocks_(static_cast<std::size_t>(capacity)), observer_(observer) {
  QUIRE_CHECK(capacity >= 1 && capacity <= std::numeric_limits<std::int32_t>::max());
  for (auto i = static_cast<std::int32_t>(capacity); i-- > 0;) PushFree(BlockId{i});
}

BlockPool::~BlockPool() {
  ReleaseHolds();
  QUIRE_CHECK(num_shares_ == 0) << num_shares_ << " block shares outlive their pool";
}

bool BlockPool::Allocate(std::span<BlockRef> out) {
  if (static_cast<std::int64_t>(out.size()) > num_available()) return false;
  for (BlockRef& ref : out) {
    const BlockId id = free_head_ != kNone ? TakeFree() : Evict();
    block(id).owners = 1;
    ++num_shares_;
    ref = BlockRef(this, id);
  }
  allocations_ += static_cast<std::int64_t>(out.size());
  peak_active_ = std::max(peak_active_, num_active());
  return true;
}

void BlockPool::MarkReusable(BlockId id) {
  QUIRE_DCHECK(block(id).owners > 0);
  block(id).reusable = true;
}

std::int64_t BlockPool::DropAllCached() {
  const std::int64_t count = num_cached_ - num_leased_;
  while (lru_oldest_ != kNone) PushFree(DropOldestCached());
  return count;
}

void BlockPool::AddLease(BlockId id) {
  Block& b = block(id);
  QUIRE_DCHECK(b.reusable && b.leases < kMaxLeases) << "block " << id.value();
  const bool is_cached = b.owners == 0;
  if (is_cached) RemoveCached(id);
  ++b.leases;
  if (is_cached) AddCached(id);
}

void BlockPool::DropLease(BlockId id, LeaseEnd why) {
  Block& b = block(id);
  QUIRE_DCHECK(b.leases > 0) << "block " << id.value();
  const bool is_cached = b.owners == 0;
  if (is_cached) RemoveCached(id);
  --b.leases;
  if (!is_cached) return;
  AddCached(id);
  b.lost_lease = b.leases == 0 && why == LeaseEnd::kForRoom;
}

void BlockPool::Hold(BlockId id) {
  Block& b = block(id);
  QUIRE_DCHECK(b.owners > 0);
  if (b.held) return;
  b.held = true;
  ++b.owners;
  held_.push_back(id);
}

void BlockPool::ReleaseHolds() {
  for (const BlockId id : held_) {
    block(id).held = false;
    DropShare(id);
  }
  held_.clear();
}

BlockState BlockPool::state(BlockId id) const {
  const Block& b = block(id);
  if (b.owners > 0) return BlockState::kActive;
  return b.reusable ? BlockState::kCached : BlockState::kFree;
}

void BlockPool::AddShare(BlockId id) {
  Block& b = block(id);
  if (b.owners++ > 0) return;
  QUIRE_DCHECK(b.reusable) << "block " << id.value() << " is free";
  RemoveCached(id);
  filled_slots_ += b.filled;
  peak_active_ = std::max(peak_active_, num_active());
}

// The last owner is gone.
void BlockPool::Deactivate(BlockId id) {
  Block& b = block(id);
  filled_slots_ -= b.filled;
  if (b.reusable) {
    AddCached(id);
  } else {
    b.filled = 0;
    PushFree(id);
  }
}

BlockId BlockPool::TakeFree() {
  const BlockId id{free_head_};
  free_head_ = block(id).next;
  --num_free_;
  return id;
}

BlockId BlockPool::Evict() {
  if (lru_oldest_ == kNone) observer_->OnOnlyLeasedLeft();
  QUIRE_CHECK(lru_oldest_ != kNone) << num_leased_ << " blocks are leased still";
  ++evictions_;
  evictions_leased_ += block(BlockId{lru_oldest_}).lost_lease;
  return DropOldestCached();
}

BlockId BlockPool::DropOldestCached() {
  const BlockId id{lru_oldest_};
  observer_->OnEvict(id);
  RemoveCached(id);
  block(id).reusable = false;
  block(id).filled = 0;
  return id;
}

void BlockPool::PushFree(BlockId id) {
  block(id).next = free_head_;
  free_head_ = id.value();
  ++num_free_;
}

void BlockPool::AddCached(BlockId id) {
  ++num_cached_;
  if (block(id).leases > 0) {
    ++num_leased_;
  } else {
    PushMostRecent(id);
  }
}

void BlockPool::RemoveCached(BlockId id) {
  Block& b = block(id);
  --num_cached_;
  b.lost_lease = 0;
  if (b.leases > 0) {
    --num_leased_;
  } else {
    Unlink(id);
  }
}

void BlockPool::PushMostRecent(BlockId id) {
  Block& b = block(id);
  b.previous = lru_newest_;
  b.next = kNone;
  (lru_newest_ == kNone ? lru_oldest_ : block(BlockId{lru_newest_}).next) = id.value();
  lru_newest_ = id.value();
}

void BlockPool::Unlink(BlockId id) {
  const Block& b = block(id);
  (b.previous == kNone ? lru_oldest_ : block(BlockId{b.previous}).next) = b.next;
  (b.next == kNone ? lru_newest_ : block(BlockId{b.next}).previous) = b.previous;
}

absl::Status BlockPool::Audit() const {
  std::int64_t free = 0, cached = 0, leased = 0, shares = 0, held = 0, filled = 0;
  for (const Block& b : blocks_) {
    if (b.owners < (b.held ? 1 : 0)) return Internal("a block has {} owners", b.owners);
    if (b.leases > 0 && !b.reusable) return Internal("a leased block is not reusable");
    if (b.lost_lease && (b.owners > 0 || b.leases > 0)) {
      return Internal("a block that lost its lease has owners or a lease");
    }
    held += b.held ? 1 : 0;
    shares += b.owners - (b.held ? 1 : 0);
    if (b.owners > 0) {
      filled += b.filled;
    } else {
      ++(b.reusable ? cached : free);
      leased += b.leases > 0 ? 1 : 0;
    }
  }
  if (free != num_free_ || cached != num_cached_ || leased != num_leased_) {
    return Internal("{} blocks free, {} cached and {} leased, but the counters say {}, {} and {}",
                    free, cached, leased, num_free_, num_cached_, num_leased_);
  }
  if (shares != num_shares_ || held != static_cast<std::int64_t>(held_.size())) {
    return Internal("{} shares and {} holds, but the counters say {} and {}", shares, held,
                    num_shares_, held_.size());
  }
  if (filled != filled_slots_) {
    return Internal("{} filled slots, but the counter says {}", filled, filled_slots_);
  }
  // Each list holds exactly the blocks of its state: right states, right length, no cycle.
  std::int64_t length = 0;
  for (std::int32_t i = free_head_; i != kNone; i = blocks_[static_cast<std::size_t>(i)].next) {
    if (state(BlockId{i}) != BlockState::kFree || ++length > free) {
      return Internal("the free list is corrupt at block {}", i);
    }
  }
  if (length != free) return Internal("the free list has {} of {} free blocks", length, free);
  length = 0;
  const std::int64_t evictable = cached - leased;
  std::int32_t previous = kNone;
  for (std::int32_t i = lru_oldest_; i != kNone; i = blocks_[static_cast<std::size_t>(i)].next) {
    if (state(BlockId{i}) != BlockState::kCached || leases(BlockId{i}) > 0 ||
        ++length > evictable || blocks_[static_cast<std::size_t>(i)].previous != previous) {
      return Internal("the LRU list is corrupt at block {}", i);
    }
    previous = i;
  }
  if (length != evictable || previous != lru_newest_) {
    return Internal("the LRU list has {} of {} cached blocks without a lease", length, evictable);
  }
  return absl::OkStatus();
}

}  // namespace quire::block_manager
