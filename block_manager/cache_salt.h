// Who may share cached prefixes with whom. Two sequences share a prefix only if their salts are
// equal, so a salt keeps one tenant from learning another's prompts from first-token times.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace quire::block_manager {

// A set of tagged parts. Each part is stored with its tag and length, so no two different sets of
// parts ever look alike: salt "abc" differs from tenant "abc", and ("ab", "c") from ("a", "bc").
class CacheSalt {
 public:
  enum class Tag : std::uint8_t {
    kRequestSalt = 1,  // The request's own `cache_salt`.
    kTenant = 2,       // The authenticated client.
  };

  // Shared by everybody who has no salt.
  CacheSalt() = default;
  static CacheSalt ForRequest(std::string_view cache_salt) {
    return CacheSalt().With(Tag::kRequestSalt, cache_salt);
  }

  // This salt and one more part. An empty value is no part.
  CacheSalt With(Tag tag, std::string_view value) const;

  bool empty() const { return encoded_.empty(); }
  // A hash that is the same in every process. Zero for the empty salt.
  std::uint32_t Hash() const;
  friend bool operator==(const CacheSalt&, const CacheSalt&) = default;
  template <class H>
  friend H AbslHashValue(H state, const CacheSalt& salt) {
    return H::combine(std::move(state), salt.encoded_);
  }

 private:
  std::string encoded_;  // Parts in the order of adding: tag byte, length (8 bytes), value.
};

// A salt's number while anything uses it. Zero is the empty salt.
using SaltId = StrongId<struct SaltIdTag, std::uint32_t>;

// Gives equal salts one number and forgets a salt when its last user is gone, so its size is
// bounded by the live sequences and indexed blocks.
//
// Thread: the engine thread only.
class SaltRegistry {
 public:
  SaltRegistry() = default;
  SaltRegistry(const SaltRegistry&) = delete;
  SaltRegistry& operator=(const SaltRegistry&) = delete;

  // Adds a use of `salt`. Each Acquire and AddUse needs one Release.
  SaltId Acquire(const CacheSalt& salt);
  void AddUse(SaltId id);
  void Release(SaltId id);

  // The hash of a salt in use.
  std::uint32_t hash(SaltId id) const { return slots_[id.value()].hash; }

  std::size_t size() const { return ids_.size(); }  // The empty salt is not counted.

 private:
  struct Slot {
    CacheSalt salt;
    std::uint32_t hash = 0;
    std::int64_t uses = 0;
  };
  absl::flat_hash_map<CacheSalt, SaltId> ids_;
  std::vector<Slot> slots_ = std::vector<Slot>(1);  // Slot 0 stands for the empty salt.
  std::vector<SaltId> free_ids_;
};

// One use of a salt.
class SaltRef {
 public:
  SaltRef() = default;
  SaltRef(SaltRegistry* registry, const CacheSalt& salt)
      : registry_(registry), id_(registry->Acquire(salt)) {}
  SaltRef(SaltRef&& other) noexcept
      : registry_(std::exchange(other.registry_, nullptr)), id_(std::exchange(other.id_, {})) {}
  SaltRef& operator=(SaltRef&& other) noexcept {
    std::swap(registry_, other.registry_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~SaltRef() {
    if (registry_ != nullptr) registry_->Release(id_);
  }

  SaltId id() const { return id_; }
  SaltRef Share() const {
    SaltRef copy;
    copy.registry_ = registry_;
    copy.id_ = id_;
    if (registry_ != nullptr) registry_->AddUse(id_);
    return copy;
  }

 private:
  SaltRegistry* registry_ = nullptr;
  SaltId id_;
};

}  // namespace quire::block_manager
