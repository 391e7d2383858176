// What the tests of a BlockManager share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "block_manager/block_manager.h"

namespace quire::block_manager {

using Tokens = std::vector<TokenId>;

// `count` tokens that no other `first` 10,000 away shares.
inline Tokens Range(int count, TokenId first = 0) {
  Tokens tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline Tokens Concat(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class BlockManagerFixture : public testing::Test {
 protected:
  void Start(BlockManagerOptions options) {
    ASSERT_EQ(options.Validate(), absl::OkStatus());
    manager_ = std::make_unique<BlockManager>(options);
  }
  void Start(std::int64_t num_blocks, std::int32_t block_size = 16) {
    Start({.num_blocks = num_blocks, .block_size = block_size});
  }

  SequenceBlocks New(std::string_view salt = "") {
    return manager_->NewSequence(CacheSalt::ForRequest(salt));
  }
  // A sequence with all of `tokens` computed. REQUIRES: there is room.
  SequenceBlocks Computed(const Tokens& tokens, std::string_view salt = "") {
    SequenceBlocks sequence = New(salt);
    EXPECT_EQ(manager_->Admit(&sequence, tokens, {}), Verdict::kNow);
    manager_->Commit(&sequence, tokens, static_cast<std::int32_t>(tokens.size()));
    return sequence;
  }
  // Cached tokens that a sequence of `tokens` starts with.
  std::int32_t Hits(const Tokens& tokens, std::string_view salt = "") {
    SequenceBlocks sequence = New(salt);
    EXPECT_EQ(manager_->Admit(&sequence, tokens, {}), Verdict::kNow);
    return sequence.num_computed_tokens();
  }
  Verdict Extend(SequenceBlocks* sequence, std::int32_t end) {
    return manager_->Extend(sequence, end, &copies_);
  }

  void ExpectSound(std::vector<const SequenceBlocks*> sequences = {}) {
    EXPECT_EQ(manager_->Audit(sequences), absl::OkStatus());
    const BlockStats stats = manager_->stats();
    EXPECT_EQ(stats.active + stats.cached + stats.free, stats.capacity);
  }
  void ExpectCounts(std::int64_t active, std::int64_t cached, std::int64_t free) {
    const BlockStats stats = manager_->stats();
    EXPECT_THAT((std::vector<std::int64_t>{stats.active, stats.cached, stats.free}),
                testing::ElementsAre(active, cached, free));
  }
  static std::vector<int> Ids(const SequenceBlocks& sequence) {
    std::vector<int> ids;
    for (const BlockId id : sequence.table().blocks()) ids.push_back(id.value());
    return ids;
  }
  // Everything that a refused call must leave as it was.
  std::string Fingerprint() {
    std::string print;
    for (const BlockManager::BlockInfo& info : manager_->BlockInfos()) {
      print +=
          std::to_string(static_cast<int>(info.state)) + ":" + std::to_string(info.owners) + " ";
    }
    const BlockStats s = manager_->stats();
    for (const std::int64_t n :
         {s.useful_slots, s.logical_blocks, s.evictions, s.copies_on_write, s.allocations,
          s.peak_active, s.leased, s.sessions, s.leases_displaced}) {
      print += std::to_string(n) + " ";
    }
    return print;
  }

  std::unique_ptr<BlockManager> manager_;
  std::vector<CopyOrder> copies_;
};

}  // namespace quire::block_manager
