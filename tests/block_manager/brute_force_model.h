// What a BlockManager must do, written with maps, vectors and full scans instead of cleverness: a
// content is the whole prefix from position 0, not a hash and a parent; lists are searched; counts
// are counted when asked for; what was ever cached is never forgotten.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "block_manager/block_manager.h"

namespace quire::block_manager {

struct ModelSequence {
  std::string salt;
  std::int32_t first_block = 0;  // Of the table, counted from position 0.
  std::vector<std::int32_t> table = {};
  std::int32_t num_computed = 0;
  std::int32_t num_indexed = 0;
  std::int64_t last_serial = 0;  // Of the content indexed last; 0: none.
};

struct ModelLease {
  std::string session, salt;
  std::vector<std::int32_t> blocks;
  std::vector<TokenId> tokens;
  absl::Time expiry;
};

class BruteForceModel {
 public:
  explicit BruteForceModel(const BlockManagerOptions& options);

  std::vector<std::int32_t> Match(const std::string& salt,
                                  const std::vector<TokenId>& tokens) const;
  Verdict Admit(ModelSequence* sequence, const std::vector<TokenId>& tokens,
                const AdmitOptions& options, PrefixReport* report);
  Verdict Extend(ModelSequence* sequence, std::int32_t end_position,
                 std::vector<CopyOrder>* copies);
  void FinishCopies();
  void Commit(ModelSequence* sequence, const std::vector<TokenId>& tokens,
              std::int32_t num_computed);
  ModelSequence Fork(const ModelSequence& sequence);
  void SlideWindow(ModelSequence* sequence, std::int32_t position);
  void Release(ModelSequence* sequence);

  void Lease(const std::string& session, ModelSequence* sequence,
             const std::vector<TokenId>& tokens, absl::Time now);
  bool EndSession(const std::string& session, const std::string& salt);
  void ExpireLeases(absl::Time now);
  const ModelLease* FindLease(const std::string& session, const std::string& salt) const;
  absl::Time next_lease_expiry() const;

  std::int64_t ResetPrefixCache();

  BlockStats stats() const;
  BlockState state(std::int32_t block) const;
  std::int32_t owners(std::int32_t block) const { return at(block).owners; }
  bool IsLeased(std::int32_t block) const;

  struct Content {
    std::string salt;
    std::vector<TokenId> prefix;  // All tokens from position 0 to the end of the block.
    auto operator<=>(const Content&) const = default;
  };
  // Of all blocks that hold one.
  std::multiset<Content> Contents() const;

 private:
  struct Block {
    std::int32_t owners = 0;
    bool held = false;
    std::optional<Content> content = std::nullopt;
    std::int64_t serial = 0;  // Of the content; a number that no other content ever has.
    std::int64_t parent_serial = 0;
    std::int32_t filled = 0;
    bool lost_lease = false;
  };

  Block& at(std::int32_t block) { return blocks_[static_cast<std::size_t>(block)]; }
  const Block& at(std::int32_t block) const { return blocks_[static_cast<std::size_t>(block)]; }
  std::int32_t num_blocks() const { return static_cast<std::int32_t>(blocks_.size()); }
  std::int32_t BlocksToHold(std::int64_t num_tokens) const;
  std::int32_t MostBlocksAtOneTime(std::int32_t num_tokens, const SlidingWindow& window) const;
  std::int64_t CountInState(BlockState wanted) const;
  std::int64_t Available() const;
  std::optional<std::int32_t> FindContent(const Content& content, std::int64_t parent) const;
  std::optional<std::int32_t> FindSerial(std::int64_t serial) const;
  Content ContentOf(const std::string& salt, const std::vector<TokenId>& tokens,
                    std::int32_t num_tokens) const;
  PrefixReport Report(const ModelSequence& sequence, const std::vector<TokenId>& tokens,
                      const AdmitOptions& options, const std::vector<std::int32_t>& hits) const;
  std::int32_t Allocate();
  void AddOwner(std::int32_t block);
  void DropOwner(std::int32_t block);
  void PutAway(std::int32_t block);
  void Hold(std::int32_t block);
  void NotePeak();
  bool LeasesExceedLimits() const;
  void EndOldestLease(bool for_room);
  void EndLease(std::size_t index, bool for_room);

  std::int32_t block_size_;
  bool enable_prefix_caching_;
  std::int64_t max_leased_;
  absl::Duration ttl_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> free_;    // The next one to hand out is last.
  std::vector<std::int32_t> cached_;  // Without the leased ones; the next one to evict is first.
  std::vector<std::int32_t> held_;    // In the order of holding.
  std::vector<ModelLease> leases_;    // Oldest first.
  std::set<Content> ever_cached_;
  std::int64_t last_serial_ = 0;
  BlockStats since_start_;
};

}  // namespace quire::block_manager
