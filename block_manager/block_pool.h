// The fixed set of KV blocks. Hands out blocks, counts their owners, remembers which unowned blocks
// still hold content worth reusing, and forgets the least recently used of those first.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/ids.h"

namespace quire::block_manager {

class BlockPool;

// One owner's share of a block. Move-only; a second owner is made by Share() alone. Gives its share
// back when destroyed; the pool must outlive it.
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(BlockRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  BlockRef& operator=(BlockRef&& other) noexcept {
    BlockRef taken(std::move(other));
    std::swap(pool_, taken.pool_);
    std::swap(id_, taken.id_);
    return *this;
  }
  ~BlockRef();

  explicit operator bool() const { return pool_ != nullptr; }
  BlockId id() const { return id_; }
  [[nodiscard]] BlockRef Share() const;

 private:
  friend class BlockPool;
  BlockRef(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}

  BlockPool* pool_ = nullptr;
  BlockId id_;
};

enum class BlockState : std::uint8_t { kFree, kCached, kActive };

// Why a lease of a block ends.
enum class LeaseEnd : std::uint8_t {
  kGivenBack,
  kForRoom,  // There was nothing else left to evict.
};

// Ownership: a BlockRef owns one share of a block; the pool must outlive every BlockRef.
// Thread: the engine thread only.
// Cost: every operation on one block is O(1) and allocates nothing.
// Invariants: (1) active + cached + free == capacity. (2) A block is Active iff it has owners or is
// held, else Cached iff it is reusable, else Free. (3) The Cached blocks without a lease are the
// LRU list, the Free ones the free list.
class BlockPool {
 public:
  class EvictionObserver {
   public:
    // The content of a Cached block is about to be dropped.
    virtual void OnEvict(BlockId id) = 0;
    // A block is needed, and all Cached ones are leased: now drop leases until one is not.
    virtual void OnOnlyLeasedLeft() {}

   protected:
    ~EvictionObserver() = default;
  };

  // REQUIRES: 1 <= capacity < 2^31. `observer` outlives the pool.
  BlockPool(std::int64_t capacity, EvictionObserver* observer);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Fills all of `out`, or nothing and returns false. Free blocks go first (the one freed last,
  // while it is warm), then the least recently used cached ones, leased ones last of all. A new
  // block is not reusable and has no filled slots.
  [[nodiscard]] bool Allocate(std::span<BlockRef> out);

  // One more share of an Active or Cached block; a Cached one becomes Active.
  [[nodiscard]] BlockRef Acquire(BlockId id);

  // Marks an Active block's content as worth keeping: without owners it will be Cached, not Free.
  void MarkReusable(BlockId id);
  // Drops all Cached blocks without a lease, oldest first; the observer sees each. Returns how
  // many.
  std::int64_t DropAllCached();

  // A lease spares a reusable block, while it is Cached, until there is no other to evict. It is no
  // owner. A block may have several; without them it is the most recently used one.
  void AddLease(BlockId id);
  void DropLease(BlockId id, LeaseEnd why);
  static constexpr std::int64_t kMaxLeases = (1 << 20) - 1;  // Of one block.

  static constexpr std::int64_t kBytesPerBlock = 16;

  // Keeps a block Active until ReleaseHolds without being an owner: a pending copy reads or writes
  // it. Holding twice is holding once.
  void Hold(BlockId id);
  void ReleaseHolds();

  // How many slots of an Active block hold a computed token.
  void SetFilled(BlockId id, std::int32_t num_slots);

  std::int64_t capacity() const { return static_cast<std::int64_t>(blocks_.size()); }
  std::int64_t num_free() const { return num_free_; }
  std::int64_t num_cached() const { return num_cached_; }
  std::int64_t num_leased() const { return num_leased_; }  // Of the Cached ones.
  std::int64_t num_active() const { return capacity() - num_free_ - num_cached_; }
  // What Allocate can give now.
  std::int64_t num_available() const { return num_free_ + num_cached_; }

  BlockState state(BlockId id) const;
  // Shares of a block, not counting a hold.
  std::int32_t owners(BlockId id) const { return block(id).owners - (block(id).held ? 1 : 0); }
  std::int32_t filled(BlockId id) const { return block(id).filled; }
  bool reusable(BlockId id) const { return block(id).reusable; }
  std::int32_t leases(BlockId id) const { return static_cast<std::int32_t>(block(id).leases); }

  std::int64_t num_shares() const { return num_shares_; }      // The sum of owners over all blocks.
  std::int64_t filled_slots() const { return filled_slots_; }  // Over the Active blocks.
  // Since start.
  std::int64_t allocations() const { return allocations_; }
  std::int64_t evictions() const { return evictions_; }  // Cached content dropped to make room.
  std::int64_t evictions_leased() const { return evictions_leased_; }  // Whose lease ended for it.
  std::int64_t peak_active() const { return peak_active_; }

  // Recounts everything from scratch; names the first thing that is wrong. O(capacity).
  absl::Status Audit() const;

 private:
  friend class BlockRef;

  static constexpr std::int32_t kNone = -1;
  struct Block {
    std::int32_t owners = 0;        // Including a hold.
    std::int32_t previous = kNone;  // In the LRU list.
    std::int32_t next = kNone;      // In the LRU list or the free list.
    std::uint32_t filled : 9 = 0;
    std::uint32_t reusable : 1 = 0;
    std::uint32_t held : 1 = 0;
    std::uint32_t lost_lease : 1 = 0;  // For room; still Cached.
    std::uint32_t leases : 20 = 0;
  };
  static_assert(sizeof(Block) == kBytesPerBlock);

  Block& block(BlockId id) { return blocks_[static_cast<std::size_t>(id.value())]; }
  const Block& block(BlockId id) const { return blocks_[static_cast<std::size_t>(id.value())]; }
  void AddShare(BlockId id);
  void DropShare(BlockId id);
  void Deactivate(BlockId id);
  BlockId TakeFree();
  BlockId Evict();
  BlockId DropOldestCached();
  void PushFree(BlockId id);
  void AddCached(BlockId id);
  void RemoveCached(BlockId id);
  void PushMostRecent(BlockId id);
  void Unlink(BlockId id);

  std::vector<Block> blocks_;
  EvictionObserver* observer_;
  std::vector<BlockId> held_;
  std::int32_t free_head_ = kNone;
  std::int32_t lru_oldest_ = kNone;
  std::int32_t lru_newest_ = kNone;
  std::int64_t num_free_ = 0;
  std::int64_t num_cached_ = 0;
  std::int64_t num_leased_ = 0;
  std::int64_t num_shares_ = 0;
  std::int64_t filled_slots_ = 0;
  std::int64_t allocations_ = 0;
  std::int64_t evictions_ = 0;
  std::int64_t evictions_leased_ = 0;
  std::int64_t peak_active_ = 0;
};

inline BlockRef::~BlockRef() {
  if (pool_ != nullptr) {
    --pool_->num_shares_;
    pool_->DropShare(id_);
  }
}

inline BlockRef BlockRef::Share() const {
  QUIRE_DCHECK(pool_ != nullptr);
  return pool_->Acquire(id_);
}

inline BlockRef BlockPool::Acquire(BlockId id) {
  ++num_shares_;
  AddShare(id);
  return BlockRef(this, id);
}

inline void BlockPool::SetFilled(BlockId id, std::int32_t num_slots) {
  Block& b = block(id);
  QUIRE_DCHECK(b.owners > 0);
  filled_slots_ += num_slots - std::int64_t{b.filled};
  b.filled = static_cast<std::uint32_t>(num_slots) & 0x1FF;
}

inline void BlockPool::DropShare(BlockId id) {
  Block& b = block(id);
  QUIRE_DCHECK(b.owners > 0) << "block " << id.value();
  if (--b.owners == 0) Deactivate(id);
}

}  // namespace quire::block_manager
