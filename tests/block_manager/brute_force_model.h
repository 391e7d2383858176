// What a BlockManager must do, written with maps, vectors and full scans instead of cleverness: a
// content is the whole prefix from position 0, not a hash and a parent; lists are searched; counts
// are counted when asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "block_manager/block_manager.h"

namespace quire::block_manager {

struct ModelSequence {
  std::string salt;
  std::vector<std::int32_t> table = {};
  std::int32_t num_computed = 0;
  std::int32_t num_indexed = 0;
};

class BruteForceModel {
 public:
  BruteForceModel(std::int32_t num_blocks, std::int32_t block_size, bool enable_prefix_caching);

  std::vector<std::int32_t> Match(const std::string& salt,
                                  const std::vector<TokenId>& tokens) const;
  Verdict Admit(ModelSequence* sequence, const std::vector<TokenId>& tokens,
                const AdmitOptions& options);
  Verdict Extend(ModelSequence* sequence, std::int32_t end_position,
                 std::vector<CopyOrder>* copies);
  void FinishCopies();
  void Commit(ModelSequence* sequence, const std::vector<TokenId>& tokens,
              std::int32_t num_computed);
  ModelSequence Fork(const ModelSequence& sequence);
  void Release(ModelSequence* sequence);
  std::int64_t ResetPrefixCache();

  BlockStats stats() const;
  BlockState state(std::int32_t block) const;
  std::int32_t owners(std::int32_t block) const { return at(block).owners; }

 private:
  struct Content {
    std::string salt;
    std::vector<TokenId> prefix;  // All tokens from position 0 to the end of the block.
    bool operator==(const Content&) const = default;
  };
  struct Block {
    std::int32_t owners = 0;
    bool held = false;
    std::optional<Content> content = std::nullopt;
    std::int32_t filled = 0;
  };

  Block& at(std::int32_t block) { return blocks_[static_cast<std::size_t>(block)]; }
  const Block& at(std::int32_t block) const { return blocks_[static_cast<std::size_t>(block)]; }
  std::int64_t CountInState(BlockState wanted) const;
  std::int64_t Available() const;
  std::optional<std::int32_t> FindContent(const Content& content) const;
  Content ContentOf(const std::string& salt, const std::vector<TokenId>& tokens,
                    std::int32_t num_tokens) const;
  std::int32_t Allocate();
  void AddOwner(std::int32_t block);
  void DropOwner(std::int32_t block);
  void PutAway(std::int32_t block);
  void Hold(std::int32_t block);
  void NotePeak();

  std::int32_t block_size_;
  bool enable_prefix_caching_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> free_;    // The next one to hand out is last.
  std::vector<std::int32_t> cached_;  // The next one to evict is first.
  std::vector<std::int32_t> held_;    // In the order of holding.
  std::int64_t evictions_ = 0, copies_ = 0, allocations_ = 0, peak_ = 0;
};

}  // namespace quire::block_manager
