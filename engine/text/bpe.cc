#include "engine/text/bpe.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace quire::engine::text {
namespace {

// Heap order: the lowest rank first, of equal ones the leftmost.
bool ComesLater(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

Bpe::Bpe(const std::array<TokenId, 256>& byte_ids, const std::vector<Merge>& merges,
         std::optional<Unknown> unknown)
    : byte_ids_(byte_ids), unknown_(unknown) {
  joins_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const Merge& merge : merges) {
    joins_.insert_or_assign(Pair(merge.left, merge.right), Join{rank++, merge.joined});
  }
}

void Bpe::SetWholePieces(absl::flat_hash_map<std::string, TokenId> ids) {
  whole_pieces_ = std::move(ids);
}

void Bpe::AddSymbols(std::string_view piece, BpeScratch& scratch) const {
  scratch.symbols.clear();
  bool last_is_unknown = false;
  const auto add = [&](TokenId id) {
    const auto position = static_cast<std::int32_t>(scratch.symbols.size());
    if (position > 0) scratch.symbols.back().next = position;
    scratch.symbols.push_back({id, position - 1, -1, false});
  };
  for (const char c : piece) {
    const TokenId id = byte_ids_[static_cast<std::uint8_t>(c)];
    if (id >= 0) {
      add(id);
    } else if (unknown_ && !(unknown_->fuse && last_is_unknown)) {
      add(unknown_->id);
    }
    last_is_unknown = id < 0;
  }
}

void Bpe::PushCandidate(std::int32_t position, BpeScratch& scratch) const {
  const BpeScratch::Symbol& left = scratch.symbols[static_cast<std::size_t>(position)];
  if (left.next < 0) return;
  const BpeScratch::Symbol& right = scratch.symbols[static_cast<std::size_t>(left.next)];
  const auto join = joins_.find(Pair(left.id, right.id));
  if (join == joins_.end()) return;
  scratch.heap.push_back({join->second.rank, position, join->second.joined});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), ComesLater);
  ++scratch.num_heap_operations;
}

void Bpe::TryJoin(const BpeScratch::Candidate& candidate, BpeScratch& scratch) const {
  BpeScratch::Symbol& left = scratch.symbols[static_cast<std::size_t>(candidate.position)];
  if (left.is_gone || left.next < 0) return;
  BpeScratch::Symbol& right = scratch.symbols[static_cast<std::size_t>(left.next)];
  // Compared by what the pair makes, as Hugging Face does.
  const auto join = joins_.find(Pair(left.id, right.id));
  if (join == joins_.end() || join->second.joined != candidate.joined) return;
  left.id = candidate.joined;
  left.next = right.next;
  right.is_gone = true;
  if (right.next >= 0) {
    scratch.symbols[static_cast<std::size_t>(right.next)].previous = candidate.position;
  }
  if (left.previous >= 0) PushCandidate(left.previous, scratch);
  PushCandidate(candidate.position, scratch);
}

void Bpe::Encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (!whole_pieces_.empty()) {
    const auto whole = whole_pieces_.find(AsAbsl(piece));
    if (whole != whole_pieces_.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  AddSymbols(piece, scratch);
  scratch.heap.clear();
  for (std::size_t i = 0; i < scratch.symbols.size(); ++i) {
    PushCandidate(static_cast<std::int32_t>(i), scratch);
  }
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), ComesLater);
    const BpeScratch::Candidate candidate = scratch.heap.back();
    scratch.heap.pop_back();
    ++scratch.num_heap_operations;
    TryJoin(candidate, scratch);
  }
  for (std::int32_t i = scratch.symbols.empty() ? -1 : 0; i >= 0;
       i = scratch.symbols[static_cast<std::size_t>(i)].next) {
    out.push_back(scratch.symbols[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace quire::engine::text
