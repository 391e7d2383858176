#include "tests/block_manager/brute_force_model.h"

#include <algorithm>

namespace quire::block_manager {

BruteForceModel::BruteForceModel(const BlockManagerOptions& options)
    : block_size_(options.block_size),
      enable_prefix_caching_(options.enable_prefix_caching),
      max_leased_(static_cast<std::int64_t>(options.session_share *
                                            static_cast<double>(options.num_blocks))),
      ttl_(options.session_ttl),
      blocks_(static_cast<std::size_t>(options.num_blocks)) {
  for (std::int32_t i = num_blocks(); i-- > 0;) free_.push_back(i);
}

BlockState BruteForceModel::state(std::int32_t block) const {
  const Block& b = at(block);
  if (b.owners > 0 || b.held) return BlockState::kActive;
  return b.content.has_value() ? BlockState::kCached : BlockState::kFree;
}

std::int64_t BruteForceModel::CountInState(BlockState wanted) const {
  std::int64_t count = 0;
  for (std::int32_t i = 0; i < num_blocks(); ++i) count += state(i) == wanted ? 1 : 0;
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

std::optional<std::int32_t> BruteForceModel::FindContent(const Content& content,
                                                         std::int64_t parent) const {
  for (std::int32_t i = 0; i < num_blocks(); ++i) {
    if (at(i).content == content && at(i).parent_serial == parent) return i;
  }
  return std::nullopt;
}

std::optional<std::int32_t> BruteForceModel::FindSerial(std::int64_t serial) const {
  for (std::int32_t i = 0; i < num_blocks(); ++i) {
    if (at(i).content.has_value() && at(i).serial == serial) return i;
  }
  return std::nullopt;
}

std::vector<std::int32_t> BruteForceModel::Match(const std::string& salt,
                                                 const std::vector<TokenId>& tokens) const {
  std::vector<std::int32_t> hits;
  if (!enable_prefix_caching_) return hits;
  std::int64_t parent = 0;
  for (std::int32_t end = block_size_; end < static_cast<std::int32_t>(tokens.size());
       end += block_size_) {
    const std::optional<std::int32_t> hit = FindContent(ContentOf(salt, tokens, end), parent);
    if (!hit.has_value()) break;
    hits.push_back(*hit);
    parent = at(*hit).serial;
  }
  return hits;
}

std::int32_t BruteForceModel::Allocate() {
  std::int32_t block = 0;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    while (cached_.empty()) EndOldestLease(/*for_room=*/true);
    block = cached_.front();
    cached_.erase(cached_.begin());
    ++since_start_.evictions;
    since_start_.evictions_leased += at(block).lost_lease ? 1 : 0;
  }
  at(block) = {.owners = 1};
  ++since_start_.allocations;
  return block;
}

void BruteForceModel::NotePeak() {
  since_start_.peak_active = std::max(since_start_.peak_active, CountInState(BlockState::kActive));
}

void BruteForceModel::AddOwner(std::int32_t block) {
  std::erase(cached_, block);
  at(block).lost_lease = false;
  ++at(block).owners;
}

void BruteForceModel::DropOwner(std::int32_t block) {
  --at(block).owners;
  PutAway(block);
}

void BruteForceModel::PutAway(std::int32_t block) {
  if (state(block) == BlockState::kActive) return;
  if (at(block).content.has_value()) {
    if (!IsLeased(block)) cached_.push_back(block);
  } else {
    at(block).filled = 0;
    free_.push_back(block);
  }
}

std::int32_t BruteForceModel::BlocksToHold(std::int64_t num_tokens) const {
  std::int32_t count = 0;
  while (std::int64_t{count} * block_size_ < num_tokens) ++count;
  return count;
}

std::int32_t BruteForceModel::MostBlocksAtOneTime(std::int32_t num_tokens,
                                                  const SlidingWindow& window) const {
  if (window.tokens == 0) return BlocksToHold(num_tokens);
  std::int32_t most = 0;
  for (std::int32_t begin = 0; begin < num_tokens; ++begin) {
    const std::int32_t end = std::min(num_tokens, begin + window.max_chunk);
    std::set<std::int32_t> touched;
    for (std::int32_t position = std::max(0, begin - window.tokens + 1); position < end;
         ++position) {
      touched.insert(position / block_size_);
    }
    most = std::max(most, static_cast<std::int32_t>(touched.size()));
  }
  return most;
}

Verdict BruteForceModel::Admit(ModelSequence* sequence, const std::vector<TokenId>& tokens,
                               const AdmitOptions& options, PrefixReport* report) {
  const std::int32_t length =
      std::max(static_cast<std::int32_t>(tokens.size()), options.reserve_tokens);
  const std::int32_t most = MostBlocksAtOneTime(length, options.window);
  if (most > num_blocks()) return Verdict::kNever;
  std::vector<std::int32_t> hits;
  if (options.use_prefix_cache) hits = Match(sequence->salt, tokens);
  const std::vector<std::int32_t> all_hits = hits;
  const std::int32_t num_cached = static_cast<std::int32_t>(hits.size()) * block_size_;
  std::int32_t first = 0;
  if (options.window.tokens > 0) {
    // The next token, at num_cached, sees positions above num_cached - window.
    while (!hits.empty() && (first + 1) * block_size_ - 1 <= num_cached - options.window.tokens) {
      hits.erase(hits.begin());
      ++first;
    }
  }
  const std::int32_t total = std::min(BlocksToHold(length) - first, most);
  std::int64_t taken = total - static_cast<std::int32_t>(hits.size());
  for (const std::int32_t hit : hits) taken += state(hit) == BlockState::kCached ? 1 : 0;
  if (taken + options.keep_available > Available()) return Verdict::kNotNow;

  *report = Report(*sequence, tokens, options, all_hits);
  sequence->first_block = first;
  sequence->num_indexed = static_cast<std::int32_t>(all_hits.size());
  sequence->num_computed = num_cached;
  sequence->last_serial = all_hits.empty() ? 0 : at(all_hits.back()).serial;
  for (const std::int32_t hit : hits) AddOwner(hit);
  sequence->table = hits;
  NotePeak();
  while (static_cast<std::int32_t>(sequence->table.size()) < total) {
    sequence->table.push_back(Allocate());
  }
  NotePeak();
  return Verdict::kNow;
}

PrefixReport BruteForceModel::Report(const ModelSequence& sequence,
                                     const std::vector<TokenId>& tokens,
                                     const AdmitOptions& options,
                                     const std::vector<std::int32_t>& hits) const {
  PrefixReport report;
  const auto num_tokens = static_cast<std::int32_t>(tokens.size());
  if (!options.use_prefix_cache || !enable_prefix_caching_) return {.bypassed = num_tokens};
  report.hit = static_cast<std::int32_t>(hits.size()) * block_size_;
  const ModelLease* const lease =
      options.session == nullptr ? nullptr : FindLease(options.session->id, sequence.salt);
  for (const std::int32_t hit : hits) {
    if (lease != nullptr && std::ranges::count(lease->blocks, hit) > 0) {
      report.hit_leased += block_size_;
    }
  }
  std::int32_t end = report.hit + block_size_;
  for (; end < num_tokens; end += block_size_) {
    bool this_salt = false, other_salt = false;
    for (const Content& content : ever_cached_) {
      if (content.prefix != ContentOf("", tokens, end).prefix) continue;
      (content.salt == sequence.salt ? this_salt : other_salt) = true;
    }
    (this_salt    ? report.evicted
     : other_salt ? report.other_salt
                  : report.never_seen) += block_size_;
  }
  report.partial_block = num_tokens - (end - block_size_);
  return report;
}

Verdict BruteForceModel::Extend(ModelSequence* sequence, std::int32_t end_position,
                                std::vector<CopyOrder>* copies) {
  const std::int32_t total = BlocksToHold(end_position) - sequence->first_block;
  if (total > num_blocks()) return Verdict::kNever;
  const auto held_blocks = static_cast<std::int32_t>(sequence->table.size());
  std::vector<std::int32_t> to_copy;  // Indices into the table.
  for (std::int32_t i = 0; i < held_blocks; ++i) {
    const std::int32_t begin = (sequence->first_block + i) * block_size_;
    const bool is_written = begin + block_size_ > sequence->num_computed && begin < end_position;
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
    ++since_start_.copies_on_write;
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
  const auto entry_of = [&](std::int32_t block) -> std::int32_t& {
    return sequence->table[static_cast<std::size_t>(block - sequence->first_block)];
  };
  for (std::int32_t position = sequence->num_computed; position < num_computed; ++position) {
    at(entry_of(position / block_size_)).filled = position % block_size_ + 1;
  }
  sequence->num_computed = num_computed;
  if (!enable_prefix_caching_) return;
  while ((sequence->num_indexed + 1) * block_size_ <= num_computed) {
    std::int32_t& entry = entry_of(sequence->num_indexed++);
    const Content content = ContentOf(sequence->salt, tokens, sequence->num_indexed * block_size_);
    if (const auto found = FindContent(content, sequence->last_serial)) {
      AddOwner(*found);
      NotePeak();
      DropOwner(std::exchange(entry, *found));
    } else {
      at(entry).content = content;
      at(entry).serial = ++last_serial_;
      at(entry).parent_serial = sequence->last_serial;
      ever_cached_.insert(content);
    }
    sequence->last_serial = at(entry).serial;
  }
}

ModelSequence BruteForceModel::Fork(const ModelSequence& sequence) {
  for (const std::int32_t block : sequence.table) AddOwner(block);
  return sequence;
}

void BruteForceModel::SlideWindow(ModelSequence* sequence, std::int32_t position) {
  std::vector<std::int32_t> gone;
  while (!sequence->table.empty() &&
         (sequence->first_block + 1) * block_size_ <= std::min(position, sequence->num_computed)) {
    gone.push_back(sequence->table.front());
    sequence->table.erase(sequence->table.begin());
    ++sequence->first_block;
  }
  for (; !gone.empty(); gone.pop_back()) DropOwner(gone.back());
}

void BruteForceModel::Release(ModelSequence* sequence) {
  while (!sequence->table.empty()) {
    const std::int32_t block = sequence->table.back();
    sequence->table.pop_back();
    DropOwner(block);
  }
  *sequence = {.salt = sequence->salt};
}

bool BruteForceModel::IsLeased(std::int32_t block) const {
  return std::ranges::any_of(leases_, [block](const ModelLease& lease) {
    return std::ranges::count(lease.blocks, block) > 0;
  });
}

void BruteForceModel::Lease(const std::string& session, ModelSequence* sequence,
                            const std::vector<TokenId>& tokens, absl::Time now) {
  if (max_leased_ > 0) {
    std::vector<std::int32_t> chain;
    std::int64_t serial = sequence->last_serial;
    while (serial != 0) {
      const std::optional<std::int32_t> block = FindSerial(serial);
      if (!block.has_value()) chain.clear();
      if (!block.has_value()) break;
      chain.insert(chain.begin(), *block);
      serial = at(*block).parent_serial;
    }
    while (static_cast<std::int64_t>(chain.size()) > max_leased_) chain.pop_back();
    for (const std::int32_t block : chain) {
      std::erase(cached_, block);
      at(block).lost_lease = false;
    }
    leases_.push_back({session, sequence->salt, chain, tokens, now + ttl_});
    for (std::size_t i = 0; i + 1 < leases_.size(); ++i) {
      if (leases_[i].session != session || leases_[i].salt != sequence->salt) continue;
      EndLease(i, /*for_room=*/false);
      break;
    }
    while (LeasesExceedLimits() && leases_.size() > 1) EndOldestLease(/*for_room=*/false);
  }
  Release(sequence);
}

bool BruteForceModel::LeasesExceedLimits() const {
  std::set<std::int32_t> blocks;
  std::size_t num_tokens = 0;
  for (const ModelLease& lease : leases_) {
    blocks.insert(lease.blocks.begin(), lease.blocks.end());
    num_tokens += lease.tokens.size();
  }
  return static_cast<std::int64_t>(blocks.size()) > max_leased_ ||
         num_tokens > 4 * blocks_.size() * static_cast<std::size_t>(block_size_);
}

// For room, leases without blocks are of no use.
void BruteForceModel::EndOldestLease(bool for_room) {
  ++since_start_.leases_displaced;
  std::size_t oldest = 0;
  while (for_room && leases_[oldest].blocks.empty()) ++oldest;
  EndLease(oldest, for_room);
}

void BruteForceModel::EndLease(std::size_t index, bool for_room) {
  std::vector<std::int32_t> blocks = leases_[index].blocks;
  leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(index));
  for (; !blocks.empty(); blocks.pop_back()) {
    const std::int32_t block = blocks.back();
    if (state(block) != BlockState::kCached || IsLeased(block)) continue;
    cached_.push_back(block);
    at(block).lost_lease = for_room;
  }
}

bool BruteForceModel::EndSession(const std::string& session, const std::string& salt) {
  for (std::size_t i = 0; i < leases_.size(); ++i) {
    if (leases_[i].session != session || leases_[i].salt != salt) continue;
    EndLease(i, /*for_room=*/false);
    return true;
  }
  return false;
}

void BruteForceModel::ExpireLeases(absl::Time now) {
  while (!leases_.empty() && leases_.front().expiry <= now) {
    ++since_start_.leases_expired;
    EndLease(0, /*for_room=*/false);
  }
}

const ModelLease* BruteForceModel::FindLease(const std::string& session,
                                             const std::string& salt) const {
  for (const ModelLease& lease : leases_) {
    if (lease.session == session && lease.salt == salt) return &lease;
  }
  return nullptr;
}

absl::Time BruteForceModel::next_lease_expiry() const {
  absl::Time next = absl::InfiniteFuture();
  for (const ModelLease& lease : leases_) next = std::min(next, lease.expiry);
  return next;
}

std::int64_t BruteForceModel::ResetPrefixCache() {
  while (!leases_.empty()) EndLease(0, /*for_room=*/false);
  const auto count = static_cast<std::int64_t>(cached_.size());
  for (const std::int32_t block : cached_) {
    at(block) = {};
    free_.push_back(block);
  }
  cached_.clear();
  since_start_.dropped_by_reset += count;
  return count;
}

std::multiset<BruteForceModel::Content> BruteForceModel::Contents() const {
  std::multiset<Content> contents;
  for (const Block& block : blocks_) {
    if (block.content.has_value()) contents.insert(*block.content);
  }
  return contents;
}

BlockStats BruteForceModel::stats() const {
  BlockStats stats = since_start_;
  stats.capacity = num_blocks();
  stats.block_size = block_size_;
  stats.active = CountInState(BlockState::kActive);
  stats.cached = CountInState(BlockState::kCached);
  stats.free = CountInState(BlockState::kFree);
  stats.sessions = static_cast<std::int64_t>(leases_.size());
  for (std::int32_t i = 0; i < num_blocks(); ++i) {
    if (state(i) == BlockState::kActive) stats.useful_slots += at(i).filled;
    if (state(i) == BlockState::kCached && IsLeased(i)) ++stats.leased;
    stats.logical_blocks += at(i).owners;
  }
  return stats;
}

}  // namespace quire::block_manager
