#include "block_manager/block_manager.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace quire::block_manager {

namespace {

// Sessions that share blocks may keep more tokens than their blocks hold, but not without bound.
constexpr std::int64_t kSessionTokensPerSlot = 4;

}  // namespace

static_assert(BlockPool::kBytesPerBlock + PrefixIndex::kBytesPerBlock +
                  ContentHistory::kBytesPerBlock <=
              64);

absl::Status BlockManagerOptions::Validate() const {
  if (block_size < 1 || block_size > 256 ||
      !std::has_single_bit(static_cast<unsigned>(block_size))) {
    return InvalidArgument("block-size must be a power of two in [1, 256], got {}", block_size);
  }
  constexpr std::int64_t kMaxSlots = std::numeric_limits<std::int32_t>::max();
  if (num_blocks < 1 || num_blocks > kMaxSlots / block_size) {
    return InvalidArgument("num-blocks must be in [1, {}] at block-size {}, got {}",
                           kMaxSlots / block_size, block_size, num_blocks);
  }
  if (num_blocks * block_size < 2) {
    return InvalidArgument(
        "num-blocks {} x block-size {} is one slot, but the smallest request needs 2", num_blocks,
        block_size);
  }
  if (!(session_share >= 0.0 && session_share <= 1.0)) {
    return InvalidArgument("session-share must be in [0, 1], got {}", session_share);
  }
  if (session_ttl <= absl::ZeroDuration()) {
    return InvalidArgument("session-ttl must be positive, got {}",
                           absl::FormatDuration(session_ttl));
  }
  if (hash == nullptr) return InvalidArgument("the prefix hash must not be null");
  return absl::OkStatus();
}

BlockManager::BlockManager(const BlockManagerOptions& options)
    : block_size_(options.block_size),
      block_shift_(std::countr_zero(static_cast<std::uint32_t>(options.block_size))),
      enable_prefix_caching_(options.enable_prefix_caching),
      index_(options.num_blocks, options.block_size, options.hash, options.hash_seed, &salts_),
      history_(options.num_blocks),
      observer_(this),
      pool_(options.num_blocks, &observer_),
      leases_({.max_blocks = options.max_session_blocks(),
               .max_tokens = kSessionTokensPerSlot * options.num_blocks * options.block_size,
               .ttl = options.session_ttl},
              &pool_) {}

SequenceBlocks BlockManager::NewSequence(const CacheSalt& salt) {
  return SequenceBlocks(SaltRef(&salts_, salt), BlockTable(block_size_));
}

std::span<const TokenId> BlockManager::TokensOfBlock(std::span<const TokenId> tokens,
                                                     std::int32_t ordinal) const {
  const auto size = static_cast<std::size_t>(block_size_);
  return tokens.subspan(static_cast<std::size_t>(ordinal) * size, size);
}

PrefixKey BlockManager::KeyOfBlock(const SequenceBlocks& sequence, const BlockIdentity& parent,
                                   std::span<const TokenId> tokens, std::int32_t ordinal) const {
  return {sequence.salt_.id(), parent, TokensOfBlock(tokens, ordinal)};
}

void BlockManager::AppendNewBlocks(BlockTable* table, std::int64_t count) {
  new_blocks_.resize(static_cast<std::size_t>(count));
  const bool allocated = pool_.Allocate(new_blocks_);
  QUIRE_CHECK(allocated) << count << " blocks of " << num_available() << " available";
  for (BlockRef& block : new_blocks_) table->Append(std::move(block));
  new_blocks_.clear();
}

Verdict BlockManager::MakeWritable(SequenceBlocks* sequence, std::int32_t end_position,
                                   std::vector<CopyOrder>* copies) {
  BlockTable& table = sequence->table_;
  // Of the blocks that are written to, those from the table's size on are missing.
  const std::int32_t first = table.index_of(sequence->num_computed_tokens_);
  const std::int32_t end = table.index_of(end_position - 1) + 1;
  const std::int32_t end_of_old = std::min(end, table.size());
  const std::int32_t missing = end - end_of_old;
  std::int32_t shared = 0;
  for (std::int32_t i = first; i < end_of_old; ++i) shared += IsShared(table[i]) ? 1 : 0;
  if (end > capacity()) return Verdict::kNever;
  if (missing + shared > num_available()) return Verdict::kNotNow;

  for (std::int32_t i = first; i < end_of_old; ++i) {
    if (IsShared(table[i])) CopyForWriting(&table, i, copies);
  }
  if (missing > 0) AppendNewBlocks(&table, missing);
  return Verdict::kNow;
}

void BlockManager::CopyForWriting(BlockTable* table, std::int32_t index,
                                  std::vector<CopyOrder>* copies) {
  const BlockId source = (*table)[index];
  BlockRef copy;
  const bool allocated = pool_.Allocate({&copy, 1});
  QUIRE_CHECK(allocated);
  const BlockId target = copy.id();
  pool_.SetFilled(target, pool_.filled(source));
  pool_.Hold(source);
  pool_.Hold(target);
  table->Replace(index, std::move(copy));
  copies->push_back({source, target});
  ++copies_on_write_;
}

void BlockManager::IndexNextBlock(SequenceBlocks* sequence, std::span<const TokenId> tokens) {
  const std::int32_t ordinal = sequence->num_indexed_blocks_++;
  const std::int32_t index = sequence->table_.index_of(ordinal * block_size_);
  const BlockIdentity parent = sequence->last_indexed_;
  const BlockId own = sequence->table_[index];
  const BlockId indexed = index_.FindOrInsert(KeyOfBlock(*sequence, parent, tokens, ordinal), own);
  sequence->indexed_content_ =
      ContentHistory::Extend(sequence->indexed_content_, TokensOfBlock(tokens, ordinal));
  if (indexed == own) {
    pool_.MarkReusable(own);
    history_.Store(own, sequence->indexed_content_, salts_.hash(sequence->salt_.id()));
    if (records_events_) events_.push_back(StoredEvent(own));
  } else {
    sequence->table_.Replace(index, pool_.Acquire(indexed));
  }
  sequence->last_indexed_ = index_.identity(indexed);
}

SequenceBlocks BlockManager::Fork(const SequenceBlocks& sequence) {
  SequenceBlocks fork(sequence.salt_.Share(), sequence.table_.Fork());
  fork.num_computed_tokens_ = sequence.num_computed_tokens_;
  fork.num_indexed_blocks_ = sequence.num_indexed_blocks_;
  fork.last_indexed_ = sequence.last_indexed_;
  fork.indexed_content_ = sequence.indexed_content_;
  return fork;
}

void BlockManager::SlideWindow(SequenceBlocks* sequence, std::int32_t position) {
  sequence->table_.SlideTo(std::min(position, sequence->num_computed_tokens_));
}

void BlockManager::Release(SequenceBlocks* sequence) {
  sequence->table_.Clear();
  sequence->num_computed_tokens_ = 0;
  sequence->num_indexed_blocks_ = 0;
  sequence->last_indexed_ = kNoParent;
  sequence->indexed_content_ = kEmptyPrefix;
}

void BlockManager::Lease(const SessionKey& key, SequenceBlocks* sequence,
                         std::span<const TokenId> tokens, absl::Time now) {
  if (leases_.allowed()) {
    CollectIndexedChain(*sequence);
    leases_.Lease(key, chain_, tokens, now);
  }
  Release(sequence);
}

void BlockManager::CollectIndexedChain(const SequenceBlocks& sequence) {
  chain_.clear();
  for (BlockIdentity at = sequence.last_indexed_; at != kNoParent; at = index_.key(at.id).parent) {
    if (!index_.contains(at)) return chain_.clear();
    chain_.push_back(at.id);
  }
  std::ranges::reverse(chain_);
}

std::int64_t BlockManager::ResetPrefixCache() {
  leases_.EndAll();
  // If that is all there is, one event stands for all.
  const bool clears = index_.size() > 0 && index_.size() == pool_.num_cached();
  const bool records_events = std::exchange(records_events_, records_events_ && !clears);
  const std::int64_t dropped = pool_.DropAllCached();
  records_events_ = records_events;
  if (records_events_ && clears) events_.push_back({.kind = KvEvent::Kind::kCleared});
  dropped_by_reset_ += dropped;
  return dropped;
}

void BlockManager::ForgetContent(BlockId id) {
  if (records_events_) events_.push_back(RemovedEvent(id));
  history_.Touch(id, salts_.hash(index_.key(id).salt));
  index_.Erase(id);
}

BlockStats BlockManager::stats() const {
  return {.capacity = capacity(),
          .block_size = block_size_,
          .active = pool_.num_active(),
          .cached = pool_.num_cached(),
          .free = pool_.num_free(),
          .leased = pool_.num_leased(),
          .sessions = leases_.size(),
          .useful_slots = pool_.filled_slots(),
          .logical_blocks = pool_.num_shares(),
          .evictions = pool_.evictions(),
          .evictions_leased = pool_.evictions_leased(),
          .dropped_by_reset = dropped_by_reset_,
          .leases_expired = leases_.expired(),
          .leases_displaced = leases_.displaced(),
          .copies_on_write = copies_on_write_,
          .allocations = pool_.allocations(),
          .peak_active = pool_.peak_active()};
}

std::vector<BlockManager::BlockInfo> BlockManager::BlockInfos() const {
  std::vector<BlockInfo> infos;
  infos.reserve(static_cast<std::size_t>(capacity()));
  for (std::int32_t i = 0; i < capacity(); ++i) {
    infos.push_back(
        {pool_.state(BlockId{i}), pool_.owners(BlockId{i}), pool_.leases(BlockId{i}) > 0});
  }
  return infos;
}

}  // namespace quire::block_manager
