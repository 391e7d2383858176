// What the bookkeeping costs: bytes per block, and no allocation where none is needed. Counted by a
// global operator new of this binary.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <vector>

#include "block_manager/block_manager.h"

namespace {

std::atomic<std::int64_t> num_allocations{0}, num_bytes{0};

void* CountedAllocate(std::size_t size) {
  ++num_allocations;
  num_bytes += static_cast<std::int64_t>(size);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Out of line, or GCC takes malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t size) { return CountedAllocate(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return CountedAllocate(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace quire::block_manager {
namespace {

TEST(Memory, BookkeepingIsAtMost64BytesPerBlockBesideItsTokens) {
  constexpr std::int64_t kBlocks = (1 << 20) + 1, kBlockSize = 16;
  const std::int64_t before = num_bytes;
  const BlockManager manager({.num_blocks = kBlocks, .block_size = kBlockSize});
  const std::int64_t per_block =
      (num_bytes - before) / kBlocks - kBlockSize * std::int64_t{sizeof(TokenId)};
  EXPECT_LE(per_block, 64);
  EXPECT_GE(per_block, 32);  // The counting counts.
}

TEST(Memory, DecodingAndEvictingAllocateNothing) {
  constexpr std::int32_t kPrompt = 64, kTokens = 4096;
  BlockManager manager({.num_blocks = 8});
  std::vector<TokenId> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<CopyOrder> copies;
  const SlidingWindow window{.tokens = 48, .max_chunk = kPrompt};
  SequenceBlocks sequence = manager.NewSequence({});
  PrefixReport report;
  ASSERT_EQ(manager.Admit(&sequence, std::span(tokens).first(kPrompt), {.window = window}, &report),
            Verdict::kNow);
  manager.Commit(&sequence, tokens, kPrompt);
  const auto decode = [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t position = begin; position < end; ++position) {
      EXPECT_EQ(manager.Extend(&sequence, position + 1, &copies), Verdict::kNow);
      manager.FinishCopies();
      manager.Commit(&sequence, tokens, position + 1);
      manager.SlideWindow(&sequence, window.FirstSeen(position + 1));
    }
  };
  decode(kPrompt, 256);
  const std::int64_t before = num_allocations;
  decode(256, kTokens);
  EXPECT_EQ(num_allocations - before, 0);
  EXPECT_GT(manager.stats().evictions, 200);
}

TEST(Memory, AdmittingAgainAndReportingAllocateNothing) {
  BlockManager manager({.num_blocks = 64});
  std::vector<TokenId> tokens(512);
  std::iota(tokens.begin(), tokens.end(), 0);
  SequenceBlocks sequence = manager.NewSequence({});
  PrefixReport report;
  const auto admit = [&] {
    EXPECT_EQ(manager.Admit(&sequence, tokens, {}, &report), Verdict::kNow);
    manager.Commit(&sequence, tokens, 512);
    manager.Release(&sequence);
  };
  for (int i = 0; i < 2; ++i) admit();
  const std::int64_t before = num_allocations;
  admit();
  EXPECT_EQ(report, (PrefixReport{.hit = 496, .partial_block = 16}));
  manager.ResetPrefixCache();
  admit();
  EXPECT_EQ(report, (PrefixReport{.evicted = 496, .partial_block = 16}));
  EXPECT_EQ(num_allocations - before, 0);
}

}  // namespace
}  // namespace quire::block_manager
