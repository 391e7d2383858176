// Starting sequences: what is cached of them, what they need, and why the rest was not cached.
#include <algorithm>

#include "base/check.h"
#include "block_manager/block_manager.h"

namespace quire::block_manager {

std::int32_t BlockManager::LookedUpBlocks(std::span<const TokenId> tokens) const {
  return tokens.empty() ? 0 : static_cast<std::int32_t>((tokens.size() - 1) >> block_shift_);
}

void BlockManager::MatchInto(const SequenceBlocks& sequence, std::span<const TokenId> tokens,
                             std::vector<BlockId>* hits) const {
  hits->clear();
  if (!enable_prefix_caching_) return;
  const std::int32_t max_hits = LookedUpBlocks(tokens);
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

std::int64_t BlockManager::BlocksForTokens(std::int64_t num_tokens,
                                           const SlidingWindow& window) const {
  if (window.tokens == 0) return BlocksForTokens(num_tokens);
  // A step's tokens and what the first of them sees, wherever in a block they begin.
  const std::int64_t most = std::int64_t{window.tokens} - 1 + window.max_chunk + block_size_ - 1;
  return BlocksForTokens(std::min(num_tokens, most));
}

Verdict BlockManager::Admit(SequenceBlocks* sequence, std::span<const TokenId> tokens,
                            const AdmitOptions& options, PrefixReport* report) {
  QUIRE_DCHECK(sequence->table_.empty() && sequence->num_computed_tokens_ == 0);
  const std::int64_t length =
      std::max(static_cast<std::int64_t>(tokens.size()), std::int64_t{options.reserve_tokens});
  const std::int64_t most = BlocksForTokens(length, options.window);
  if (most > capacity()) return Verdict::kNever;

  hits_.clear();
  if (options.use_prefix_cache) MatchInto(*sequence, tokens, &hits_);
  const auto num_hits = static_cast<std::int32_t>(hits_.size());
  const std::int32_t num_cached = num_hits * block_size_;
  const std::int32_t first = options.window.FirstSeen(num_cached) >> block_shift_;
  const std::span<const BlockId> seen_hits =
      std::span(hits_).subspan(static_cast<std::size_t>(first));
  const std::int64_t total = std::min(BlocksForTokens(length) - first, most);
  // A hit that nobody owns is taken out of what is available, like a new block.
  const std::int64_t active_hits = std::ranges::count_if(
      seen_hits, [this](BlockId id) { return pool_.state(id) == BlockState::kActive; });
  if (total - active_hits + options.keep_available > num_available()) return Verdict::kNotNow;

  // Before new blocks evict what is remembered here, or end leases.
  if (report != nullptr) *report = Report(*sequence, tokens, options);
  for (const BlockId id : hits_) history_.Touch(id, salts_.hash(sequence->salt_.id()));
  sequence->num_computed_tokens_ = num_cached;
  sequence->num_indexed_blocks_ = num_hits;
  if (num_hits > 0) {
    sequence->last_indexed_ = index_.identity(hits_.back());
    sequence->indexed_content_ = history_.content(hits_.back());
  }
  // Hits first, so that the new blocks cannot evict them.
  sequence->table_.StartAt(first * block_size_);
  for (const BlockId id : seen_hits) sequence->table_.Append(pool_.Acquire(id));
  AppendNewBlocks(&sequence->table_, total - static_cast<std::int64_t>(seen_hits.size()));
  return Verdict::kNow;
}

PrefixReport BlockManager::Report(const SequenceBlocks& sequence, std::span<const TokenId> tokens,
                                  const AdmitOptions& options) const {
  const auto num_tokens = static_cast<std::int32_t>(tokens.size());
  if (!options.use_prefix_cache || !enable_prefix_caching_) return {.bypassed = num_tokens};

  const auto num_hits = static_cast<std::int32_t>(hits_.size());
  const std::int32_t num_looked_up = LookedUpBlocks(tokens);
  PrefixReport report{.hit = num_hits * block_size_,
                      .partial_block = num_tokens - num_looked_up * block_size_};
  if (options.session != nullptr) {
    const auto not_leased = std::ranges::mismatch(hits_, leases_.Blocks(*options.session)).in1;
    report.hit_leased = static_cast<std::int32_t>(not_leased - hits_.begin()) * block_size_;
  }
  ContentHash content = num_hits > 0 ? history_.content(hits_.back()) : kEmptyPrefix;
  for (std::int32_t i = num_hits; i < num_looked_up; ++i) {
    content = ContentHistory::Extend(content, TokensOfBlock(tokens, i));
    switch (history_.Recall(content, salts_.hash(sequence.salt_.id()))) {
      case ContentHistory::Memory::kUnderThisSalt:
        report.evicted += block_size_;
        break;
      case ContentHistory::Memory::kUnderOtherSalts:
        report.other_salt += block_size_;
        break;
      case ContentHistory::Memory::kNone:
        // Who had computed more of it would have computed this.
        report.never_seen = (num_looked_up - i) * block_size_;
        return report;
    }
  }
  return report;
}

}  // namespace quire::block_manager
