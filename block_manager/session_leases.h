// A session is a conversation of several turns. When a turn is over, its blocks are leased: still
// Cached, but evicted only when nothing else is left, so that the next turn computes new tokens
// alone.
#pragma once

#include <string>
#include <utility>

#include "block_manager/cache_salt.h"

namespace quire::block_manager {

// Sessions of different salts have nothing to do with each other.
struct SessionKey {
  std::string id;
  CacheSalt salt;
  friend bool operator==(const SessionKey&, const SessionKey&) = default;
  template <class H>
  friend H AbslHashValue(H state, const SessionKey& key) {
    return H::combine(std::move(state), key.id, key.salt);
  }
};

}  // namespace quire::block_manager
