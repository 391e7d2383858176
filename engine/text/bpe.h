// Byte-pair encoding of one piece of text: single bytes, joined pair by pair in the order of the
// merge list until no pair is left that can be joined.
//
// Immutable once built; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace quire::engine::text {

// One thread's working memory, reused between pieces.
struct BpeScratch {
  struct Symbol {
    TokenId id;
    std::int32_t previous, next;  // Neighbours; -1: none.
    bool is_gone;                 // Joined to the one before it.
  };
  // A pair that may be joined, `position` being that of its left symbol.
  struct Candidate {
    std::uint32_t rank;
    std::int32_t position;
    TokenId joined;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::int64_t num_heap_operations = 0;  // Counts up; at most 6 per byte of the text.
};

class Bpe {
 public:
  struct Merge {
    TokenId left, right, joined;
  };
  struct Unknown {
    TokenId id;
    bool fuse;  // One id for a run of bytes that have none.
  };

  // byte_ids[b]: the token of byte b, or -1: such bytes become `unknown`, or vanish. `merges` in
  // order of rank; of a pair that comes twice the later counts.
  Bpe(const std::array<TokenId, 256>& byte_ids, const std::vector<Merge>& merges,
      std::optional<Unknown> unknown);
  // A piece that is a whole token (bytes to id) is not merged (ignore_merges).
  void SetWholePieces(absl::flat_hash_map<std::string, TokenId> ids);

  // Appends the ids of `piece` to `out`. O(n log n) in its length whatever it holds.
  void Encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Join {
    std::uint32_t rank;
    TokenId joined;
  };
  static std::uint64_t Pair(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  void AddSymbols(std::string_view piece, BpeScratch& scratch) const;
  void PushCandidate(std::int32_t position, BpeScratch& scratch) const;
  // Joins the candidate's pair unless the symbols there have changed since it was pushed.
  void TryJoin(const BpeScratch::Candidate& candidate, BpeScratch& scratch) const;

  std::array<TokenId, 256> byte_ids_;
  absl::flat_hash_map<std::uint64_t, Join> joins_;
  std::optional<Unknown> unknown_;
  absl::flat_hash_map<std::string, TokenId> whole_pieces_;
};

}  // namespace quire::engine::text
