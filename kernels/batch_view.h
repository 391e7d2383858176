// One step's work, flattened to plain arrays: what kernels see of sequences and block tables.
//
// T = tokens computed in this step, S = sequences, L = rows that need logits. All spans point into
// memory of the caller and live until the step ends. Rows of one sequence are adjacent and their
// positions ascend by one.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace quire::kernels {

// Copy the content of block `source` to block `target` in every layer before anything is written.
struct BlockCopy {
  std::int32_t source;
  std::int32_t target;
};

struct BatchView {
  std::span<const TokenId> token_ids;       // [T]
  std::span<const std::int32_t> positions;  // [T] absolute position of each token
  std::span<const std::int32_t>
      q_indptr;  // [S + 1] rows of sequence s: [q_indptr[s], q_indptr[s+1])
  std::span<const std::int32_t> kv_lens;       // [S] keys a sequence has once this step is written
  std::span<const std::int32_t> block_indptr;  // [S + 1] into block_ids
  std::span<const std::int32_t> block_ids;     // block tables, end to end
  std::span<const std::int32_t> first_position;  // [S] position of the first slot of the table
  std::span<const std::int32_t> logits_rows;     // [L] ascending indices into [0, T); may repeat
  std::span<const BlockCopy> copies;             // copy-on-write orders, executed first

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(token_ids.size()); }
  std::int32_t num_sequences() const { return static_cast<std::int32_t>(kv_lens.size()); }
};

}  // namespace quire::kernels
