#include "kernels/cpu/linear_ops.h"

#include <algorithm>

#include "base/check.h"

namespace quire::kernels::cpu {
namespace {

// Rows that meet the weights together: their inputs should stay in half of a second-level cache of
// 1 MiB. A multiple of 28 (two row blocks of AVX-512); at least 56, so that streaming the weights
// again for the next rows costs little.
std::int32_t RowsAtATime(std::int32_t inputs) {
  constexpr std::int64_t kInputBytes = 512 << 10;
  const std::int64_t rows = kInputBytes / (std::int64_t{4} * inputs) / 28 * 28;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(rows, 56, 112));
}
static_assert(112 <= LinearScratch::kMaxRows);

// Items per worker that `num_groups` column groups are cut into: of two groups at most, so that a
// worker that loses its core does not hold up the others for long, or more if there are so many
// that handing them out would show.
std::int64_t ItemsPerWorker(std::int64_t num_groups, int num_threads) {
  constexpr std::int64_t kMaxItems = 64;
  const std::int64_t groups = (num_groups + num_threads - 1) / num_threads;
  return std::min((groups + 1) / 2, kMaxItems);
}

}  // namespace

LinearOps::LinearOps(const IsaTable& table, ThreadPool& pool) : table_(table), pool_(pool) {
  auto scratch =
      AlignedBuffer::Allocate(sizeof(LinearScratch) * static_cast<std::size_t>(pool.num_threads()));
  QUIRE_CHECK(scratch.ok()) << scratch.status().ToString();
  scratch_ = *std::move(scratch);
}

void LinearOps::Run(const PackedWeights& weights, const CpuLinearInput& input, Epilogue epilogue,
                    MatrixView out) {
  QUIRE_DCHECK(input.features() == weights.in_features()) << input.features();
  QUIRE_DCHECK(out.cols == weights.out_features()) << out.cols;
  QUIRE_DCHECK(out.rows <= input.max_rows()) << out.rows;
  const LinearKernel kernel = table_.linear[static_cast<int>(weights.packed_format())];
  const std::int32_t max_rows = RowsAtATime(weights.in_features());
  const std::int64_t row_blocks = (out.rows + max_rows - 1) / max_rows;
  const std::int64_t num_groups = weights.num_groups();
  const std::int64_t row_items =
      std::min(num_groups, pool_.num_threads() * ItemsPerWorker(num_groups, pool_.num_threads()));

  pool_.ParallelFor(row_blocks * row_items, [&](std::int64_t item, int worker) {
    const std::int64_t block = item / row_items;
    const std::int64_t part = item - block * row_items;
    const auto first_row = static_cast<std::int32_t>(out.rows * block / row_blocks);
    const auto last_row = static_cast<std::int32_t>(out.rows * (block + 1) / row_blocks);
    const LinearArgs args = {.weights = weights.data(),
                             .group_bytes = weights.group_bytes(),
                             .inputs = weights.in_features(),
                             .outputs = weights.out_features(),
                             .x = input.row(first_row),
                             .x_stride = input.stride(),
                             .rows = last_row - first_row,
                             .out = out.row(first_row),
                             .out_stride = out.stride,
                             .add = epilogue == Epilogue::kAdd};
    kernel(args, num_groups * part / row_items, num_groups * (part + 1) / row_items,
           scratch_.as<LinearScratch>()[worker]);
  });
}

}  // namespace quire::kernels::cpu
