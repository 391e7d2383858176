// Gives sequences their KV blocks: finds cached prefixes, admits, extends, forks and releases, and
// indexes what has been computed so that later sequences find it.
//
//   SequenceBlocks blocks = manager.NewSequence(salt);
//   manager.Admit(&blocks, tokens, {});          // Cached prefix + blocks for the rest.
//   ... compute tokens [blocks.num_computed_tokens(), tokens.size()) ...
//   manager.Commit(&blocks, tokens, tokens.size());
//   manager.Extend(&blocks, tokens.size() + 1, &copies);
//   ... execute copies, compute one more token, FinishCopies, Commit, ...
//   manager.Release(&blocks);                    // Full blocks stay Cached.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/ids.h"
#include "block_manager/block_pool.h"
#include "block_manager/cache_salt.h"
#include "block_manager/content_history.h"
#include "block_manager/copy_order.h"
#include "block_manager/kv_event.h"
#include "block_manager/prefix_index.h"
#include "block_manager/prefix_report.h"
#include "block_manager/sequence_blocks.h"
#include "block_manager/session_leases.h"
#include "block_manager/sliding_window.h"
#include "block_manager/stats.h"

namespace quire::block_manager {

struct BlockManagerOptions {
  std::int64_t num_blocks = 0;   // The pool's capacity.
  std::int32_t block_size = 16;  // Token slots per block; a power of two, at most 256.
  bool enable_prefix_caching = true;
  // The share of the blocks that sessions may lease, and for how long. No share: no sessions.
  double session_share = 0.5;
  absl::Duration session_ttl = absl::Minutes(10);
  // Speed depends on these two, results never: hits are verified.
  PrefixHash hash = HashPrefixKey;
  std::uint64_t hash_seed = 0;

  // Names the offending flag in its message.
  absl::Status Validate() const;
  // What session_share comes to; 0: no session is kept.
  std::int64_t max_session_blocks() const {
    return static_cast<std::int64_t>(session_share * static_cast<double>(num_blocks));
  }
};

// Whether blocks can be had. Anything but kNow changed nothing.
enum class Verdict {
  kNow,
  kNotNow,  // When others give blocks back.
  kNever,   // The whole pool would not do.
};

struct AdmitOptions {
  bool use_prefix_cache = true;
  std::int64_t keep_available = 0;  // Blocks that must still be available afterwards.
  // Takes blocks for that many tokens, if the sequence is shorter.
  std::int32_t reserve_tokens = 0;
  // With a window, the sequence starts with the part of its prefix that the next token sees, and
  // gets no more blocks than it ever needs at one time; Extend and SlideWindow do the rest.
  SlidingWindow window = {};
  const SessionKey* session = nullptr;  // Whose turn it is, for the report. May be null.
};

// Ownership: owns the pool and the index; SequenceBlocks own shares and must not outlive it.
// Thread: the engine thread only.
// Invariants: (1) active + cached + free == capacity after every call. (2) A block is indexed iff
// the pool calls it reusable. (3) Only full, computed blocks are indexed, each content after one
// parent once: a sequence that computed it again adopts the indexed block and frees its own.
class BlockManager {
 public:
  // REQUIRES: options.Validate().ok().
  explicit BlockManager(const BlockManagerOptions& options);

  // A sequence without blocks that shares prefixes within `salt`.
  SequenceBlocks NewSequence(const CacheSalt& salt);

  // The cached blocks that a sequence of these tokens can start with. Never all of it: at least
  // the last token is left to compute.
  std::vector<BlockId> Match(const SequenceBlocks& sequence, std::span<const TokenId> tokens) const;

  // The tokens in them.
  std::int32_t NumCachedTokens(const SequenceBlocks& sequence,
                               std::span<const TokenId> tokens) const {
    return static_cast<std::int32_t>(Match(sequence, tokens).size()) * block_size_;
  }

  // Gives a sequence without blocks its cached prefix and blocks for all the rest of `tokens`.
  // Afterwards num_computed_tokens() is the length of the prefix, and `report`, unless null, says
  // where it comes from.
  [[nodiscard]] Verdict Admit(SequenceBlocks* sequence, std::span<const TokenId> tokens,
                              const AdmitOptions& options, PrefixReport* report = nullptr);

  // Makes positions [num_computed_tokens, end_position) writable: adds blocks, and replaces shared
  // ones by copies, whose orders it appends to `copies`. Source and copy of an order stay untouched
  // until FinishCopies; the last owner of a block writes in place.
  [[nodiscard]] Verdict Extend(SequenceBlocks* sequence, std::int32_t end_position,
                               std::vector<CopyOrder>* copies);
  // The step that executes all copy orders given so far is over.
  void FinishCopies() { pool_.ReleaseHolds(); }

  // Books that `tokens` [0, num_computed_tokens) are computed, and indexes the blocks filled by it.
  // REQUIRES: their slots exist; num_computed_tokens did not shrink.
  void Commit(SequenceBlocks* sequence, std::span<const TokenId> tokens,
              std::int32_t num_computed_tokens);

  // A second sequence that shares all blocks of the first.
  SequenceBlocks Fork(const SequenceBlocks& sequence);

  // Gives back the blocks wholly left of `position`, which no later token will look at.
  void SlideWindow(SequenceBlocks* sequence, std::int32_t position);

  // Gives all blocks back; the sequence may be admitted again.
  void Release(SequenceBlocks* sequence);

  // As Release, for a sequence that ends a turn of a session: leases its indexed blocks and keeps
  // `tokens`, all that are known, in place of what the session had before. The oldest leases end if
  // all together exceed their share; one that exceeds it alone is cut to the head that fits.
  // REQUIRES: `now` never goes back.
  void Lease(const SessionKey& key, SequenceBlocks* sequence, std::span<const TokenId> tokens,
             absl::Time now);
  // The tokens of the session's last turn, until the next call that ends a lease; none if it has no
  // lease: it never had one, or it expired, ended or gave way.
  std::optional<std::span<const TokenId>> SessionTokens(const SessionKey& key) const {
    return leases_.Tokens(key);
  }
  // Ends a lease. Returns whether there was one.
  bool EndSession(const SessionKey& key) { return leases_.End(key); }
  void ExpireLeases(absl::Time now) { leases_.EndExpired(now); }
  // For the block map: every lease, oldest first; valid until the next call that changes something.
  std::vector<SessionLeases::View> Sessions() const { return leases_.All(); }
  // InfiniteFuture if there is no lease.
  absl::Time next_lease_expiry() const { return leases_.next_expiry(); }

  // Forgets all cached content that no sequence uses, leased or not; returns how many blocks became
  // free.
  std::int64_t ResetPrefixCache();

  // Notes what happens to the prefix cache from now on, or stops. Off at first.
  void RecordEvents(bool on);
  // Appends what happened since the last call, in order; call it once per step, or it piles up.
  void TakeEvents(std::vector<KvEvent>* out);
  // Appends a kStored for every indexed block, parents before children. A parent that is missing
  // was evicted: then its children cannot be found any more, but still take their blocks.
  void SnapshotEvents(std::vector<KvEvent>* out) const;

  std::int32_t block_size() const { return block_size_; }
  bool caches_prefixes() const { return enable_prefix_caching_; }
  std::int32_t owners(BlockId id) const { return pool_.owners(id); }
  std::int64_t capacity() const { return pool_.capacity(); }
  std::int64_t num_available() const { return pool_.num_available(); }
  std::int64_t BlocksForTokens(std::int64_t num_tokens) const {
    return (num_tokens + block_size_ - 1) >> block_shift_;
  }
  // The most blocks that a sequence of that many tokens needs at one time.
  std::int64_t BlocksForTokens(std::int64_t num_tokens, const SlidingWindow& window) const;

  BlockStats stats() const;
  struct BlockInfo {
    BlockState state = BlockState::kFree;
    std::int32_t owners = 0;
    bool leased = false;
  };
  std::vector<BlockInfo> BlockInfos() const;  // [capacity]

  // Recounts everything from scratch and names the first thing that is wrong. `sequences` are all
  // that have blocks of this manager. O(capacity + blocks of the sequences).
  absl::Status Audit(std::span<const SequenceBlocks* const> sequences) const;

 private:
  friend class ExtendDemand;

  // Keeps index and leases in step with the pool.
  class PoolObserver final : public BlockPool::EvictionObserver {
   public:
    explicit PoolObserver(BlockManager* manager) : manager_(manager) {}
    void OnEvict(BlockId id) override { manager_->ForgetContent(id); }
    void OnOnlyLeasedLeft() override { manager_->leases_.MakeRoom(); }

   private:
    BlockManager* manager_;
  };

  void MatchInto(const SequenceBlocks& sequence, std::span<const TokenId> tokens,
                 std::vector<BlockId>* hits) const;
  // How many blocks of so many tokens are looked up: all but the last one.
  std::int32_t LookedUpBlocks(std::span<const TokenId> tokens) const;
  PrefixReport Report(const SequenceBlocks& sequence, std::span<const TokenId> tokens,
                      const AdmitOptions& options) const;
  void AppendNewBlocks(BlockTable* table, std::int64_t count);
  void CopyForWriting(BlockTable* table, std::int32_t index, std::vector<CopyOrder>* copies);
  void IndexNextBlock(SequenceBlocks* sequence, std::span<const TokenId> tokens);
  void ForgetContent(BlockId id);
  // Puts the chain of indexed blocks that the sequence ends into `chain_`, or nothing if one of
  // them is gone.
  void CollectIndexedChain(const SequenceBlocks& sequence);
  KvEvent StoredEvent(BlockId id) const;
  KvEvent RemovedEvent(BlockId id) const;
  std::span<const TokenId> TokensOfBlock(std::span<const TokenId> tokens,
                                         std::int32_t ordinal) const;
  PrefixKey KeyOfBlock(const SequenceBlocks& sequence, const BlockIdentity& parent,
                       std::span<const TokenId> tokens, std::int32_t ordinal) const;
  bool IsShared(BlockId id) const { return pool_.owners(id) > 1; }
  // Whether positions [num_computed_tokens, end_position) are in blocks that nobody else owns.
  bool IsWritable(const SequenceBlocks& sequence, std::int32_t end_position) const;
  Verdict MakeWritable(SequenceBlocks* sequence, std::int32_t end_position,
                       std::vector<CopyOrder>* copies);
  absl::Status AuditSequence(const SequenceBlocks& sequence) const;

  const std::int32_t block_size_;
  const std::int32_t block_shift_;  // log2 of block_size_.
  const bool enable_prefix_caching_;
  SaltRegistry salts_;
  PrefixIndex index_;
  ContentHistory history_;
  PoolObserver observer_;
  BlockPool pool_;
  SessionLeases leases_;
  bool records_events_ = false;
  std::vector<KvEvent> events_;  // Not taken yet.
  std::int64_t copies_on_write_ = 0;
  std::int64_t dropped_by_reset_ = 0;
  std::vector<BlockId> hits_;         // Scratch of Admit.
  std::vector<BlockId> chain_;        // Scratch of Lease.
  std::vector<BlockRef> new_blocks_;  // Scratch of AppendNewBlocks; empty between calls.
};

// Inline: what every decoding sequence does in every step, where usually nothing but the number of
// filled slots changes.
inline bool BlockManager::IsWritable(const SequenceBlocks& sequence,
                                     std::int32_t end_position) const {
  const BlockTable& table = sequence.table_;
  const std::int32_t last = table.index_of(end_position - 1);
  if (last >= table.size()) return false;
  for (std::int32_t i = table.index_of(sequence.num_computed_tokens_); i <= last; ++i) {
    if (IsShared(table[i])) return false;
  }
  return true;
}

inline Verdict BlockManager::Extend(SequenceBlocks* sequence, std::int32_t end_position,
                                    std::vector<CopyOrder>* copies) {
  QUIRE_DCHECK(end_position > sequence->num_computed_tokens_);
  if (IsWritable(*sequence, end_position)) return Verdict::kNow;
  return MakeWritable(sequence, end_position, copies);
}

inline void BlockManager::Commit(SequenceBlocks* sequence, std::span<const TokenId> tokens,
                                 std::int32_t num_computed_tokens) {
  const BlockTable& table = sequence->table_;
  QUIRE_DCHECK(num_computed_tokens >= sequence->num_computed_tokens_);
  QUIRE_DCHECK(num_computed_tokens <= table.end_position());
  std::int32_t index = table.index_of(sequence->num_computed_tokens_);
  for (std::int32_t begin = table.position_of(index); begin < num_computed_tokens;
       begin += block_size_) {
    pool_.SetFilled(table[index++], std::min(num_computed_tokens - begin, block_size_));
  }
  sequence->num_computed_tokens_ = num_computed_tokens;
  if (!enable_prefix_caching_) return;
  while (sequence->num_indexed_blocks_ < num_computed_tokens >> block_shift_) {
    IndexNextBlock(sequence, tokens);
  }
}

// How many blocks a set of Extend calls would take together, exactly: of the owners of a shared
// block that all write to it, the last one needs no copy.
class ExtendDemand {
 public:
  explicit ExtendDemand(const BlockManager* manager) : manager_(manager) {}
  void Clear();
  // REQUIRES: each sequence is added once.
  void Add(const SequenceBlocks& sequence, std::int32_t end_position);
  std::int64_t num_blocks() const { return num_blocks_; }

 private:
  const BlockManager* manager_;
  std::int64_t num_blocks_ = 0;
  absl::flat_hash_map<BlockId, std::int32_t> writers_;  // Of the shared blocks seen.
};

}  // namespace quire::block_manager
