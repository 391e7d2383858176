#include "block_manager/content_history.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace quire::block_manager {

ContentHistory::ContentHistory(std::int64_t capacity)
    : contents_(static_cast<std::size_t>(capacity)),
      sets_(std::max(static_cast<std::size_t>(kMinSets),
                     static_cast<std::size_t>(capacity) / std::tuple_size_v<Set>)) {}

ContentHash ContentHistory::Extend(ContentHash prefix, std::span<const TokenId> tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), prefix);
}

void ContentHistory::Store(BlockId id, ContentHash content, std::uint32_t salt_tag) {
  contents_[static_cast<std::size_t>(id.value())] = content;
  Note(content, salt_tag);
}

std::size_t ContentHistory::SetOf(ContentHash content) const {
  return (static_cast<std::uint32_t>(content) * std::uint64_t{sets_.size()}) >> 32;
}

void ContentHistory::Note(ContentHash content, std::uint32_t salt_tag) {
  Set& set = sets_[SetOf(content)];
  const Record record{static_cast<std::uint32_t>(content >> 32) | 1, salt_tag};
  const auto known = std::ranges::find(set, record);
  std::move_backward(set.begin(), known == set.end() ? known - 1 : known,
                     known == set.end() ? known : known + 1);
  set.front() = record;
}

ContentHistory::Memory ContentHistory::Recall(ContentHash content, std::uint32_t salt_tag) const {
  Memory memory = Memory::kNone;
  for (const Record& record : sets_[SetOf(content)]) {
    if (record.content != (static_cast<std::uint32_t>(content >> 32) | 1)) continue;
    if (record.salt_tag == salt_tag) return Memory::kUnderThisSalt;
    memory = Memory::kUnderOtherSalts;
  }
  return memory;
}

}  // namespace quire::block_manager
