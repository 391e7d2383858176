// The paged half of the CPU backend: KV cache, rotary embedding + KV write, attention, block
// copies.
//
// Ownership: belongs to a CpuBackend, whose pool it uses. Thread: as Backend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_work.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/linear_input.h"
#include "kernels/cpu/thread_pool.h"

namespace quire::kernels::cpu {

class AttentionOps {
 public:
  // `pool` outlives this object.
  AttentionOps(IsaLevel isa, ThreadPool& pool);

  absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvGeometry& geometry,
                                                      std::int64_t num_blocks);
  AttentionPlanOptions PlanOptions(const AttentionShape& shape) const;
  void CopyBlocks(KvCache& cache, std::span<const BlockCopy> copies);
  void RopeAndWriteKv(const RopeTable& rope, const AttentionShape& shape, const BatchView& batch,
                      std::int32_t layer, MatrixView qkv, KvCache& cache);
  void Attention(const AttentionShape& shape, const BatchView& batch, const AttentionPlan& plan,
                 std::int32_t layer, MatrixView qkv, const KvCache& cache, CpuLinearInput& out);

 private:
  // At least so many floats at memory_; their content is lost when it grows.
  float* Memory(std::int64_t floats);

  const AttentionKernels& kernels_;
  ThreadPool& pool_;
  // Kept between calls so that a steady step allocates nothing.
  AttentionWork work_;
  std::vector<std::int32_t> row_sequence_;  // Sequence of each row of the batch.
  AlignedBuffer memory_;
};

}  // namespace quire::kernels::cpu
