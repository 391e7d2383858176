#include "block_manager/block_manager.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace quire::block_manager {

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
  if (hash == nullptr) return InvalidArgument("the prefix hash must not be null");
  return absl::OkStatus();
}

BlockManager::BlockManager(const BlockManagerOptions& options)
    : block_size_(options.block_size),
      block_shift_(std::countr_zero(static_cast<std::uint32_t>(options.block_size))),
      enable_prefix_caching_(options.enable_prefix_caching),
      index_(options.num_blocks, options.block_size, options.hash, options.hash_seed, &salts_),
      index_eraser_(&index_),
      pool_(options.num_blocks, &index_eraser_) {}

SequenceBlocks BlockManager::NewSequence(const CacheSalt& salt) {
  return SequenceBlocks(SaltRef(&salts_, salt), BlockTable(block_size_));
}

PrefixKey BlockManager::KeyOfBlock(const SequenceBlocks& sequence, const BlockIdentity& parent,
                                   std::span<const TokenId> tokens, std::int32_t ordinal) const {
  const auto size = static_cast<std::size_t>(block_size_);
  return {sequence.salt_.id(), parent,
          tokens.subspan(static_cast<std::size_t>(ordinal) * size, size)};
}

void BlockManager::MatchInto(const SequenceBlocks& sequence, std::span<const TokenId> tokens,
                             std::vector<BlockId>* hits) const {
  hits->clear();
  if (!enable_prefix_caching_ || tokens.empty()) return;
  const auto max_hits = static_cast<std::int32_t>((tokens.size() - 1) >> block_shift_);
  BlockIdentity parent = kNoParent;
  for (std::int32_t i = 0; i < max_hits; ++i) {
    const std::optional<BlockId> hit = index_.Find(KeyOfBlock(sequence, parent, tokens, i));
    if (!hit.has_value()) break;
    hits->push_back(*hit);
    parent = index_.identity(*hit);
  }
}

std::vector<BlockId> BlockManager::Match(const SequenceBlocks& sequence,
                                         std::span<const TokenId> tokens) const {
  std::vector<BlockId> hits;
  MatchInto(sequence, tokens, &hits);
  return hits;
}

Verdict BlockManager::Admit(SequenceBlocks* sequence, std::span<const TokenId> tokens,
                            const AdmitOptions& options, PrefixReport* report) {
  QUIRE_DCHECK(sequence->table_.empty() && sequence->num_computed_tokens_ == 0);
  const std::int64_t total = BlocksForTokens(
      std::max(static_cast<std::int64_t>(tokens.size()), std::int64_t{options.reserve_tokens}));
  if (total > capacity()) return Verdict::kNever;

  hits_.clear();
  if (options.use_prefix_cache) MatchInto(*sequence, tokens, &hits_);
  // A hit that nobody owns is taken out of what is available, like a new block.
  const std::int64_t active_hits = std::ranges::count_if(
      hits_, [this](BlockId id) { return pool_.state(id) == BlockState::kActive; });
  if (total - active_hits + options.keep_available > num_available()) return Verdict::kNotNow;

  // Hits first, so that the new blocks cannot evict them.
  for (const BlockId id : hits_) sequence->table_.Append(pool_.Acquire(id));
  const auto num_hits = static_cast<std::int32_t>(hits_.size());
  AppendNewBlocks(&sequence->table_, total - num_hits);
  sequence->num_computed_tokens_ = num_hits * block_size_;
  sequence->num_indexed_blocks_ = num_hits;
  if (num_hits > 0) sequence->last_indexed_ = index_.identity(hits_.back());
  if (report != nullptr) {
    *report = {.hit = num_hits * block_size_,
               .never_seen = static_cast<std::int32_t>(tokens.size()) - num_hits * block_size_};
  }
  return Verdict::kNow;
}

void BlockManager::AppendNewBlocks(BlockTable* table, std::int64_t count) {
  new_blocks_.resize(static_cast<std::size_t>(count));
  const bool allocated = pool_.Allocate(new_blocks_);
  QUIRE_CHECK(allocated) << count << " blocks of " << num_available() << " available";
  for (BlockRef& block : new_blocks_) table->Append(std::move(block));
  new_blocks_.clear();
}

std::int64_t BlockManager::MissingBlocks(const SequenceBlocks& sequence,
                                         std::int32_t end_position) const {
  const BlockTable& table = sequence.table_;
  return std::max<std::int64_t>(
      0, BlocksForTokens(end_position - table.first_position()) - table.size());
}

std::span<const BlockId> BlockManager::WrittenBlocks(const SequenceBlocks& sequence,
                                                     std::int32_t end_position) const {
  const BlockTable& table = sequence.table_;
  const auto first = std::min(table.index_of(sequence.num_computed_tokens_), table.size());
  const auto last = std::min(table.index_of(end_position - 1) + 1, table.size());
  return table.blocks().subspan(static_cast<std::size_t>(first),
                                static_cast<std::size_t>(last - first));
}

Verdict BlockManager::Extend(SequenceBlocks* sequence, std::int32_t end_position,
                             std::vector<CopyOrder>* copies) {
  BlockTable& table = sequence->table_;
  QUIRE_DCHECK(end_position > sequence->num_computed_tokens_);
  if (BlocksForTokens(end_position - table.first_position()) > capacity()) return Verdict::kNever;
  const std::int64_t missing = MissingBlocks(*sequence, end_position);
  const std::span<const BlockId> written = WrittenBlocks(*sequence, end_position);
  const std::int64_t shared =
      std::ranges::count_if(written, [this](BlockId id) { return IsShared(id); });
  if (missing + shared > num_available()) return Verdict::kNotNow;

  if (shared > 0) {
    const std::int32_t first = table.index_of(sequence->num_computed_tokens_);
    for (std::int32_t i = first; i < first + static_cast<std::int32_t>(written.size()); ++i) {
      if (IsShared(table[i])) CopyForWriting(&table, i, copies);
    }
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

void BlockManager::Commit(SequenceBlocks* sequence, std::span<const TokenId> tokens,
                          std::int32_t num_computed_tokens) {
  const BlockTable& table = sequence->table_;
  QUIRE_DCHECK(num_computed_tokens >= sequence->num_computed_tokens_);
  QUIRE_DCHECK(num_computed_tokens <= table.end_position());
  for (std::int32_t i = table.index_of(sequence->num_computed_tokens_);
       i * block_size_ + table.first_position() < num_computed_tokens; ++i) {
    const std::int32_t begin = i * block_size_ + table.first_position();
    pool_.SetFilled(table[i], std::min(num_computed_tokens - begin, block_size_));
  }
  sequence->num_computed_tokens_ = num_computed_tokens;
  if (!enable_prefix_caching_) return;
  while ((sequence->num_indexed_blocks_ + 1) * block_size_ <= num_computed_tokens) {
    IndexNextBlock(sequence, tokens);
  }
}

void BlockManager::IndexNextBlock(SequenceBlocks* sequence, std::span<const TokenId> tokens) {
  const std::int32_t ordinal = sequence->num_indexed_blocks_++;
  const std::int32_t index = sequence->table_.index_of(ordinal * block_size_);
  const BlockIdentity parent = sequence->last_indexed_;
  const BlockId own = sequence->table_[index];
  const BlockId indexed = index_.FindOrInsert(KeyOfBlock(*sequence, parent, tokens, ordinal), own);
  if (indexed == own) {
    pool_.MarkReusable(own);
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
}

void BlockManager::Lease(const SessionKey&, SequenceBlocks* sequence, std::span<const TokenId>,
                         absl::Time) {
  Release(sequence);
}

std::optional<std::span<const TokenId>> BlockManager::SessionTokens(const SessionKey&) const {
  return std::nullopt;
}

bool BlockManager::EndSession(const SessionKey&) { return false; }

void BlockManager::ExpireLeases(absl::Time) {}

absl::Time BlockManager::next_lease_expiry() const { return absl::InfiniteFuture(); }

void BlockManager::RecordEvents(bool) {}

void BlockManager::TakeEvents(std::vector<KvEvent>*) {}

void BlockManager::SnapshotEvents(std::vector<KvEvent>*) const {}

std::int64_t BlockManager::BlocksForTokens(std::int64_t num_tokens,
                                           const SlidingWindow& window) const {
  if (window.tokens == 0) return BlocksForTokens(num_tokens);
  // A step's tokens and what the first of them sees, wherever in a block they begin.
  const std::int64_t most = std::int64_t{window.tokens} - 1 + window.max_chunk + block_size_ - 1;
  return BlocksForTokens(std::min(num_tokens, most));
}

BlockStats BlockManager::stats() const {
  return {.capacity = capacity(),
          .block_size = block_size_,
          .active = pool_.num_active(),
          .cached = pool_.num_cached(),
          .free = pool_.num_free(),
          .useful_slots = pool_.filled_slots(),
          .logical_blocks = pool_.num_shares(),
          .evictions = pool_.evictions(),
          .copies_on_write = copies_on_write_,
          .allocations = pool_.allocations(),
          .peak_active = pool_.peak_active()};
}

std::vector<BlockManager::BlockInfo> BlockManager::BlockInfos() const {
  std::vector<BlockInfo> infos;
  infos.reserve(static_cast<std::size_t>(capacity()));
  for (std::int32_t i = 0; i < capacity(); ++i) {
    infos.push_back({pool_.state(BlockId{i}), pool_.owners(BlockId{i})});
  }
  return infos;
}

}  // namespace quire::block_manager
