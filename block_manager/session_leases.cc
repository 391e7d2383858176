#include "block_manager/session_leases.h"

#include <algorithm>
#include <ranges>

#include "base/check.h"
#include "base/status.h"

namespace quire::block_manager {

void SessionLeases::Lease(const SessionKey& key, std::span<const BlockId> blocks,
                          std::span<const TokenId> tokens, absl::Time now) {
  const auto max_blocks = static_cast<std::size_t>(limits_.max_blocks);
  blocks = blocks.first(std::min(blocks.size(), max_blocks));
  // The new lease first: blocks that the former one has, too, stay leased all the time.
  for (const BlockId id : blocks) {
    if (pool_->leases(id) == 0) ++num_blocks_;
    pool_->AddLease(id);
  }
  End(key);
  leases_.push_back(
      {key, {blocks.begin(), blocks.end()}, {tokens.begin(), tokens.end()}, now + limits_.ttl});
  by_key_.emplace(key, std::prev(leases_.end()));
  num_tokens_ += static_cast<std::int64_t>(tokens.size());
  while (IsOverLimit() && leases_.size() > 1) {
    ++displaced_;
    End(leases_.begin(), LeaseEnd::kGivenBack);
  }
}

bool SessionLeases::IsOverLimit() const {
  return num_blocks_ > limits_.max_blocks || num_tokens_ > limits_.max_tokens ||
         size() > BlockPool::kMaxLeases;
}

bool SessionLeases::End(const SessionKey& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return false;
  End(found->second, LeaseEnd::kGivenBack);
  return true;
}

void SessionLeases::EndAll() {
  while (!leases_.empty()) End(leases_.begin(), LeaseEnd::kGivenBack);
}

void SessionLeases::EndExpired(absl::Time now) {
  while (!leases_.empty() && leases_.front().expiry <= now) {
    ++expired_;
    End(leases_.begin(), LeaseEnd::kGivenBack);
  }
}

void SessionLeases::MakeRoom() {
  const auto has_blocks = [](const SessionLease& lease) { return !lease.blocks.empty(); };
  while (pool_->num_leased() == pool_->num_cached()) {
    const auto oldest = std::ranges::find_if(leases_, has_blocks);
    QUIRE_CHECK(oldest != leases_.end()) << pool_->num_cached() << " blocks, leased by nobody";
    ++displaced_;
    End(oldest, LeaseEnd::kForRoom);
  }
}

// The tail first, so that it is evicted before the head.
void SessionLeases::End(Iterator lease, LeaseEnd why) {
  for (const BlockId id : std::views::reverse(lease->blocks)) {
    pool_->DropLease(id, why);
    if (pool_->leases(id) == 0) --num_blocks_;
  }
  num_tokens_ -= static_cast<std::int64_t>(lease->tokens.size());
  by_key_.erase(lease->key);
  leases_.erase(lease);
}

const SessionLeases::SessionLease* SessionLeases::Find(const SessionKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &*found->second;
}

std::optional<std::span<const TokenId>> SessionLeases::Tokens(const SessionKey& key) const {
  const SessionLease* const lease = Find(key);
  if (lease == nullptr) return std::nullopt;
  return lease->tokens;
}

std::span<const BlockId> SessionLeases::Blocks(const SessionKey& key) const {
  const SessionLease* const lease = Find(key);
  if (lease == nullptr) return {};
  return lease->blocks;
}

std::vector<SessionLeases::View> SessionLeases::All() const {
  std::vector<View> views;
  views.reserve(leases_.size());
  for (const SessionLease& lease : leases_) {
    views.push_back({lease.key, lease.blocks, lease.tokens, lease.expiry});
  }
  return views;
}

absl::Time SessionLeases::next_expiry() const {
  return leases_.empty() ? absl::InfiniteFuture() : leases_.front().expiry;
}

absl::Status SessionLeases::Audit() const {
  std::vector<std::int32_t> leases(static_cast<std::size_t>(pool_->capacity()));
  std::int64_t num_tokens = 0;
  absl::Time previous = absl::InfinitePast();
  for (const SessionLease& lease : leases_) {
    if (Find(lease.key) != &lease) return Internal("session \"{}\" is not found", lease.key.id);
    if (lease.expiry < previous) return Internal("the leases are not listed oldest first");
    previous = lease.expiry;
    num_tokens += static_cast<std::int64_t>(lease.tokens.size());
    for (const BlockId id : lease.blocks) ++leases[static_cast<std::size_t>(id.value())];
  }
  std::int64_t num_blocks = 0;
  for (std::int32_t i = 0; i < pool_->capacity(); ++i) {
    const std::int32_t expected = leases[static_cast<std::size_t>(i)];
    num_blocks += expected > 0 ? 1 : 0;
    if (expected != pool_->leases(BlockId{i})) {
      return Internal("block {} is in {} leases but has {}", i, expected,
                      pool_->leases(BlockId{i}));
    }
  }
  if (num_blocks != num_blocks_ || num_tokens != num_tokens_ || by_key_.size() != leases_.size()) {
    return Internal("{} sessions lease {} blocks and keep {} tokens, not {}, {} and {}",
                    leases_.size(), num_blocks, num_tokens, by_key_.size(), num_blocks_,
                    num_tokens_);
  }
  if (num_blocks > limits_.max_blocks) {
    return Internal("{} blocks are leased, more than {}", num_blocks, limits_.max_blocks);
  }
  return absl::OkStatus();
}

}  // namespace quire::block_manager
