// Identifiers and small integer types shared by every layer.
//
// Ids that name different things are different types, so that a block can never be passed where a
// sequence is meant. Token ids are a plain int: they live in large arrays that kernels read.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace quire {

// An integer that only compares and hashes with its own kind. `Tag` is never instantiated.
template <class Tag, class Rep>
class StrongId {
 public:
  using rep = Rep;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  template <class H>
  friend H AbslHashValue(H state, StrongId id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  Rep value_{};
};

// Index into a model's vocabulary, [0, vocab_size).
using TokenId = std::int32_t;
// One KV block of the pool, [0, capacity).
using BlockId = StrongId<struct BlockIdTag, std::int32_t>;
// One running branch of a request; unique for the life of the process, never reused.
using SequenceId = StrongId<struct SequenceIdTag, std::uint64_t>;

}  // namespace quire

template <class Tag, class Rep>
struct std::hash<quire::StrongId<Tag, Rep>> {
  std::size_t operator()(quire::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value());
  }
};
