// Turns a batch into the list of attention work items: which rows meet which keys. Shared by all
// backends; knows no kernels and no threads.
//
// Invariants of a plan: (1) every (row, visible key) pair is covered by exactly one tile. (2) The
// borders of key ranges are absolute positions, multiples of `kv_split` (or the ends of what is
// visible), so they do not depend on the batch, the chunking or the number of threads. (3) The
// tiles of one row range stand next to each other in ascending key order; their partial results
// (max, sum, output) are merged left to right, also when one thread does them all.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/batch_view.h"

namespace quire::kernels {

struct AttentionPlanOptions {
  std::int32_t max_q_rows = 16;     // Rows of one sequence that share a tile.
  std::int32_t kv_split = 1024;     // Keys of one tile; a multiple of the kernels' inner tile.
  std::int32_t sliding_window = 0;  // As AttentionShape::sliding_window.
};

struct AttentionTile {
  std::int32_t sequence;
  std::int32_t row_begin;  // In [0, T).
  std::int32_t row_end;
  std::int32_t
      kv_begin;         // Absolute positions; row r sees keys in [max(kv_begin, its window start),
  std::int32_t kv_end;  //                                          min(kv_end, position(r) + 1)).
  std::int32_t split;   // 0, 1, … among the tiles of these rows.
  std::int32_t num_splits;
};

struct AttentionPlan {
  std::vector<AttentionTile> tiles;
  std::int32_t max_splits = 1;
};

// Replaces `plan`; reuses its memory.
void PlanAttention(const BatchView& batch, const AttentionPlanOptions& options,
                   AttentionPlan& plan);

}  // namespace quire::kernels
