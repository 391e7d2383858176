// Cuts a plan into work items for the workers. A pure function of the plan and the number of
// workers; whatever it decides, results have the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention_planner.h"

namespace quire::kernels::cpu {

// Rows of one sequence over all their keys: tiles [first_tile, first_tile + num_splits) of the
// plan.
struct RowRange {
  std::int32_t first_tile;
  std::int32_t num_splits;
  // -1: one item meets the tiles in order and merges each into the state so far. Otherwise the
  // range would keep one worker busy for too long: its tiles are items of their own, the states
  // [first_state, first_state + num_splits) are kept and merged left to right afterwards.
  std::int32_t first_state;
};

// A whole range, or one tile of a range with kept states.
struct AttentionWorkItem {
  std::int32_t range;
  std::int32_t split;  // -1: the whole range.
};

struct AttentionWork {
  std::vector<RowRange> ranges;
  std::vector<AttentionWorkItem> items;  // The divided ranges first.
  std::int32_t num_states = 0;           // Fewer than 4 * num_workers ranges are divided.
  std::int32_t max_rows = 0;             // Of a tile.
};

// Replaces `work`; reuses its memory.
void DivideAttention(const AttentionPlan& plan, int num_workers, AttentionWork& work);

}  // namespace quire::kernels::cpu
