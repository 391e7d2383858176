#include "kernels/attention_planner.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace quire::kernels {
namespace {

// First key that a query at `position` sees.
std::int32_t WindowStart(std::int32_t position, std::int32_t sliding_window) {
  return sliding_window > 0 ? std::max(0, position + 1 - sliding_window) : 0;
}

// Tiles of rows [row_begin, row_end) of one sequence, cut at absolute multiples of kv_split.
void PlanRows(const BatchView& batch, const AttentionPlanOptions& options, std::int32_t sequence,
              std::int32_t row_begin, std::int32_t row_end, AttentionPlan& plan) {
  const std::int32_t kv_begin =
      std::max(WindowStart(batch.positions[row_begin], options.sliding_window),
               batch.first_position[sequence]);
  const std::int32_t kv_end = batch.positions[row_end - 1] + 1;
  const std::int32_t first_split = kv_begin / options.kv_split;
  const std::int32_t num_splits = (kv_end - 1) / options.kv_split + 1 - first_split;
  for (std::int32_t split = 0; split < num_splits; ++split) {
    // 64 bits: kv_end may be within a split of the largest int.
    const std::int64_t left = std::int64_t{first_split + split} * options.kv_split;
    plan.tiles.push_back(
        {.sequence = sequence,
         .row_begin = row_begin,
         .row_end = row_end,
         .kv_begin = static_cast<std::int32_t>(std::max<std::int64_t>(left, kv_begin)),
         .kv_end =
             static_cast<std::int32_t>(std::min<std::int64_t>(left + options.kv_split, kv_end)),
         .split = split,
         .num_splits = num_splits});
  }
  plan.max_splits = std::max(plan.max_splits, num_splits);
}

}  // namespace

void PlanAttention(const BatchView& batch, const AttentionPlanOptions& options,
                   AttentionPlan& plan) {
  QUIRE_DCHECK(options.max_q_rows > 0 && options.kv_split > 0);
  plan.tiles.clear();
  plan.max_splits = 1;
  for (std::int32_t sequence = 0; sequence < batch.num_sequences(); ++sequence) {
    const std::int32_t end = batch.q_indptr[sequence + 1];
    for (std::int32_t row = batch.q_indptr[sequence]; row < end; row += options.max_q_rows) {
      PlanRows(batch, options, sequence, row, std::min(row + options.max_q_rows, end), plan);
    }
  }
}

}  // namespace quire::kernels
