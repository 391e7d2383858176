// What a BlockManager tells of its prefix index.
#include <iterator>

#include "block_manager/block_manager.h"

namespace quire::block_manager {

namespace {

std::uint64_t BlockHash(const BlockIdentity& identity) {
  return std::uint64_t{identity.generation} << 32 | static_cast<std::uint32_t>(identity.id.value());
}

}  // namespace

KvEvent BlockManager::StoredEvent(BlockId id) const {
  const PrefixKey key = index_.key(id);
  KvEvent event{.kind = KvEvent::Kind::kStored,
                .block_hash = BlockHash(index_.identity(id)),
                .salted = key.salt != SaltId{}};
  if (key.parent != kNoParent) event.parent_hash = BlockHash(key.parent);
  if (!event.salted) event.tokens.assign(key.tokens.begin(), key.tokens.end());
  return event;
}

KvEvent BlockManager::RemovedEvent(BlockId id) const {
  return {.kind = KvEvent::Kind::kRemoved,
          .block_hash = BlockHash(index_.identity(id)),
          .salted = index_.key(id).salt != SaltId{}};
}

void BlockManager::RecordEvents(bool on) {
  records_events_ = on;
  if (!on) events_.clear();
}

void BlockManager::TakeEvents(std::vector<KvEvent>* out) {
  std::ranges::move(events_, std::back_inserter(*out));
  events_.clear();
}

void BlockManager::SnapshotEvents(std::vector<KvEvent>* out) const {
  std::vector<bool> is_told(static_cast<std::size_t>(capacity()));
  std::vector<BlockId> untold;  // A block and its ancestors.
  for (std::int32_t i = 0; i < capacity(); ++i) {
    BlockIdentity next = index_.identity(BlockId{i});
    while (index_.contains(next) && !is_told[static_cast<std::size_t>(next.id.value())]) {
      is_told[static_cast<std::size_t>(next.id.value())] = true;
      untold.push_back(next.id);
      next = index_.key(next.id).parent;
    }
    for (; !untold.empty(); untold.pop_back()) out->push_back(StoredEvent(untold.back()));
  }
}

}  // namespace quire::block_manager
