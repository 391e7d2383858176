#include "kernels/cpu/attention_ops.h"

#include "base/status.h"

namespace quire::kernels::cpu {

AttentionOps::AttentionOps(IsaLevel isa, ThreadPool& pool) : isa_(isa), pool_(pool) {}

absl::StatusOr<std::unique_ptr<KvCache>> AttentionOps::NewKvCache(const KvGeometry& /*geometry*/,
                                                                  std::int64_t /*num_blocks*/) {
  return Unimplemented("the CPU backend ({}, {} threads) has no KV cache yet", IsaName(isa_),
                       pool_.num_threads());
}

AttentionPlanOptions AttentionOps::PlanOptions(const AttentionShape& /*shape*/) const { return {}; }

void AttentionOps::CopyBlocks(KvCache& /*cache*/, std::span<const BlockCopy> /*copies*/) {}

void AttentionOps::RopeAndWriteKv(const RopeTable& /*rope*/, const AttentionShape& /*shape*/,
                                  const BatchView& /*batch*/, std::int32_t /*layer*/,
                                  MatrixView /*qkv*/, KvCache& /*cache*/) {}

void AttentionOps::Attention(const AttentionShape& /*shape*/, const BatchView& /*batch*/,
                             const AttentionPlan& /*plan*/, std::int32_t /*layer*/,
                             MatrixView /*qkv*/, const KvCache& /*cache*/,
                             CpuLinearInput& /*out*/) {}

}  // namespace quire::kernels::cpu
