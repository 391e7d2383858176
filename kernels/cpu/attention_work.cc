#include "kernels/cpu/attention_work.h"

#include <algorithm>

namespace quire::kernels::cpu {
namespace {

// Row-key pairs of a range, without the part that causality hides.
std::int64_t Cost(const AttentionPlan& plan, const RowRange& range) {
  const AttentionTile& first = plan.tiles[range.first_tile];
  const AttentionTile& last = plan.tiles[range.first_tile + range.num_splits - 1];
  return std::int64_t{first.row_end - first.row_begin} * (last.kv_end - first.kv_begin);
}

}  // namespace

void DivideAttention(const AttentionPlan& plan, int num_workers, AttentionWork& work) {
  work.ranges.clear();
  work.items.clear();
  work.num_states = 0;
  work.max_rows = 0;
  std::int64_t total = 0;
  for (std::size_t t = 0; t < plan.tiles.size();) {
    const AttentionTile& tile = plan.tiles[t];
    const RowRange range = {.first_tile = static_cast<std::int32_t>(t),
                            .num_splits = tile.num_splits,
                            .first_state = -1};
    total += Cost(plan, range);
    work.max_rows = std::max(work.max_rows, tile.row_end - tile.row_begin);
    work.ranges.push_back(range);
    t += static_cast<std::size_t>(tile.num_splits);
  }
  for (std::size_t r = 0; r < work.ranges.size(); ++r) {
    RowRange& range = work.ranges[r];
    const bool long_one = Cost(plan, range) * 4 * num_workers > total;
    if (num_workers == 1 || range.num_splits == 1 || !long_one) continue;
    range.first_state = work.num_states;
    work.num_states += range.num_splits;
    for (std::int32_t split = 0; split < range.num_splits; ++split) {
      work.items.push_back({.range = static_cast<std::int32_t>(r), .split = split});
    }
  }
  for (std::size_t r = 0; r < work.ranges.size(); ++r) {
    if (work.ranges[r].first_state >= 0) continue;
    work.items.push_back({.range = static_cast<std::int32_t>(r), .split = -1});
  }
}

}  // namespace quire::kernels::cpu
