#include "tests/block_manager/brute_force_model.h"

#include <algorithm>

namespace quire::block_manager {

BruteForceModel::BruteForceModel(std::int32_t num_blocks, std::int32_t block_size,
                                 bool enable_prefix_caching)
    : block_size_(block_size),
      enable_prefix_caching_(enable_prefix_caching),
      blocks_(static_cast<std::size_t>(num_blocks)) {
  for (std::int32_t i = num_blocks; i-- > 0;) free_.push_back(i);
}

BlockState BruteForceModel::state(std::int32_t block) const {
  const Block& b = at(block);
  if (b.owners > 0 || b.held) return BlockState::kActive;
  return b.content.has_value() ? BlockState::kCached : BlockState::kFree;
}

std::int64_t BruteForceModel::CountInState(BlockState wanted) const {
  std::int64_t count = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(blocks_.size()); ++i) {
    count += state(i) == wanted ? 1 : 0;
  }
  return count;
}

std::int64_t BruteForceModel::Available() const {
  return CountInState(BlockState::kFree) + CountInState(BlockState::kCached);
}

BruteForceModel::Content BruteForceModel::ContentOf(const std::string& salt,
                                                    const std::vector<TokenId>& tokens,
                                                    std::int32_t num_tokens) const {
  return {salt, {tokens.begin(), tokens.begin() + num_tokens}};
}

std::optional<std::int32_t> BruteForceModel::FindContent(const Content& content) const {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(blocks_.size()); ++i) {
    if (at(i).content == content) return i;
  }
  return std::nullopt;
}

std::vector<std::int32_t> BruteForceModel::Match(const std::string& salt,
                                                 const std::vector<TokenId>& tokens) const {
  std::vector<std::int32_t> hits;
  if (!enable_prefix_caching_) return hits;
  for (std::int32_t end = block_size_; end < static_cast<std::int32_t>(tokens.size());
       end += block_size_) {
    const std::optional<std::int32_t> hit = FindContent(ContentOf(salt, tokens, end));
    if (!hit.has_value()) break;
    hits.push_back(*hit);
  }
  return hits;
}

std::int32_t BruteForceModel::Allocate() {
  std::int32_t block = 0;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = cached_.front();
    cached_.erase(cached_.begin());
    ++evictions_;
  }
  at(block) = {.owners = 1};
  ++allocations_;
  return block;
}

void BruteForceModel::NotePeak() { peak_ = std::max(peak_, CountInState(BlockState::kActive)); }

void BruteForceModel::AddOwner(std::int32_t block) {
  std::erase(cached_, block);
  ++at(block).owners;
}

void BruteForceModel::DropOwner(std::int32_t block) {
  --at(block).owners;
  PutAway(block);
}

void BruteForceModel::PutAway(std::int32_t block) {
  if (state(block) == BlockState::kActive) return;
  if (at(block).content.has_value()) {
    cached_.push_back(block);
  } else {
    at(block).filled = 0;
    free_.push_back(block);
  }
}

Verdict BruteForceModel::Admit(ModelSequence* sequence, const std::vector<TokenId>& tokens,
                               const AdmitOptions& options) {
  const auto total = (static_cast<std::int32_t>(tokens.size()) + block_size_ - 1) / block_size_;
  if (total > static_cast<std::int32_t>(blocks_.size())) return Verdict::kNever;
  std::vector<std::int32_t> hits;
  if (options.use_prefix_cache) hits = Match(sequence->salt, tokens);
  std::int64_t taken = total - static_cast<std::int32_t>(hits.size());
  for (const std::int32_t hit : hits) taken += state(hit) == BlockState::kCached ? 1 : 0;
  if (taken + options.keep_available > Available()) return Verdict::kNotNow;

  for (const std::int32_t hit : hits) AddOwner(hit);
  sequence->table = hits;
  NotePeak();
  while (static_cast<std::int32_t>(sequence->table.size()) < total) {
    sequence->table.push_back(Allocate());
  }
  NotePeak();
  sequence->num_indexed = static_cast<std::int32_t>(hits.size());
  sequence->num_computed = sequence->num_indexed * block_size_;
  return Verdict::kNow;
}

Verdict BruteForceModel::Extend(ModelSequence* sequence, std::int32_t end_position,
                                std::vector<CopyOrder>* copies) {
  const std::int32_t total = (end_position + block_size_ - 1) / block_size_;
  if (total > static_cast<std::int32_t>(blocks_.size())) return Verdict::kNever;
  const auto held_blocks = static_cast<std::int32_t>(sequence->table.size());
  std::vector<std::int32_t> to_copy;  // Indices into the table.
  for (std::int32_t i = 0; i < held_blocks; ++i) {
    const bool is_written =
        (i + 1) * block_size_ > sequence->num_computed && i * block_size_ < end_position;
    if (is_written && at(sequence->table[static_cast<std::size_t>(i)]).owners > 1) {
      to_copy.push_back(i);
    }
  }
  const std::int32_t missing = std::max(0, total - held_blocks);
  if (missing + static_cast<std::int32_t>(to_copy.size()) > Available()) return Verdict::kNotNow;

  for (const std::int32_t i : to_copy) {
    std::int32_t& entry = sequence->table[static_cast<std::size_t>(i)];
    const std::int32_t source = entry, target = Allocate();
    NotePeak();
    at(target).filled = at(source).filled;
    Hold(source);
    Hold(target);
    entry = target;
    DropOwner(source);
    copies->push_back({BlockId{source}, BlockId{target}});
    ++copies_;
  }
  for (std::int32_t i = 0; i < missing; ++i) sequence->table.push_back(Allocate());
  NotePeak();
  return Verdict::kNow;
}

void BruteForceModel::Hold(std::int32_t block) {
  if (at(block).held) return;
  at(block).held = true;
  held_.push_back(block);
}

void BruteForceModel::FinishCopies() {
  for (const std::int32_t block : held_) {
    at(block).held = false;
    PutAway(block);
  }
  held_.clear();
}

void BruteForceModel::Commit(ModelSequence* sequence, const std::vector<TokenId>& tokens,
                             std::int32_t num_computed) {
  for (std::int32_t position = sequence->num_computed; position < num_computed; ++position) {
    at(sequence->table[static_cast<std::size_t>(position / block_size_)]).filled =
        position % block_size_ + 1;
  }
  sequence->num_computed = num_computed;
  if (!enable_prefix_caching_) return;
  while ((sequence->num_indexed + 1) * block_size_ <= num_computed) {
    std::int32_t& entry = sequence->table[static_cast<std::size_t>(sequence->num_indexed++)];
    const Content content = ContentOf(sequence->salt, tokens, sequence->num_indexed * block_size_);
    if (const std::optional<std::int32_t> found = FindContent(content)) {
      AddOwner(*found);
      NotePeak();
      DropOwner(std::exchange(entry, *found));
    } else {
      at(entry).content = content;
    }
  }
}

ModelSequence BruteForceModel::Fork(const ModelSequence& sequence) {
  for (const std::int32_t block : sequence.table) AddOwner(block);
  return sequence;
}

void BruteForceModel::Release(ModelSequence* sequence) {
  while (!sequence->table.empty()) {
    const std::int32_t block = sequence->table.back();
    sequence->table.pop_back();
    DropOwner(block);
  }
  *sequence = {.salt = sequence->salt};
}

std::int64_t BruteForceModel::ResetPrefixCache() {
  const auto count = static_cast<std::int64_t>(cached_.size());
  for (const std::int32_t block : cached_) {
    at(block) = {};
    free_.push_back(block);
  }
  cached_.clear();
  return count;
}

BlockStats BruteForceModel::stats() const {
  BlockStats stats = {.capacity = static_cast<std::int64_t>(blocks_.size()),
                      .block_size = block_size_,
                      .active = CountInState(BlockState::kActive),
                      .cached = CountInState(BlockState::kCached),
                      .free = CountInState(BlockState::kFree),
                      .evictions = evictions_,
                      .copies_on_write = copies_,
                      .allocations = allocations_,
                      .peak_active = peak_};
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(blocks_.size()); ++i) {
    if (state(i) == BlockState::kActive) stats.useful_slots += at(i).filled;
    stats.logical_blocks += at(i).owners;
  }
  return stats;
}

}  // namespace quire::block_manager
