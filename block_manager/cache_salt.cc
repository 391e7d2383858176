#include "block_manager/cache_salt.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"

namespace quire::block_manager {

CacheSalt CacheSalt::With(Tag tag, std::string_view value) const {
  CacheSalt result = *this;
  if (value.empty()) return result;
  result.encoded_.push_back(static_cast<char>(tag));
  for (int shift = 0; shift < 64; shift += 8) {
    result.encoded_.push_back(static_cast<char>(std::uint64_t{value.size()} >> shift));
  }
  result.encoded_.append(value);
  return result;
}

std::uint32_t CacheSalt::Hash() const {
  if (empty()) return 0;
  return static_cast<std::uint32_t>(XXH3_64bits(encoded_.data(), encoded_.size()));
}

SaltId SaltRegistry::Acquire(const CacheSalt& salt) {
  if (salt.empty()) return SaltId{};
  const auto [found, is_new] = ids_.try_emplace(salt);
  if (is_new) {
    if (free_ids_.empty()) {
      free_ids_.push_back(SaltId{static_cast<std::uint32_t>(slots_.size())});
      slots_.emplace_back();
    }
    found->second = free_ids_.back();
    free_ids_.pop_back();
    slots_[found->second.value()] = {.salt = salt, .hash = salt.Hash()};
  }
  AddUse(found->second);
  return found->second;
}

void SaltRegistry::AddUse(SaltId id) {
  if (id != SaltId{}) ++slots_[id.value()].uses;
}

void SaltRegistry::Release(SaltId id) {
  if (id == SaltId{}) return;
  Slot& slot = slots_[id.value()];
  QUIRE_DCHECK(slot.uses > 0);
  if (--slot.uses > 0) return;
  ids_.erase(slot.salt);
  slot.salt = CacheSalt();
  free_ids_.push_back(id);
}

}  // namespace quire::block_manager
