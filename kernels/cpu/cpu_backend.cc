#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "kernels/cpu/attention_ops.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/linear_input.h"
#include "kernels/cpu/linear_ops.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"

namespace quire::kernels {
namespace cpu {
namespace {

const IsaTable& TableFor(IsaLevel level) {
  return level == IsaLevel::kAvx512 ? kAvx512Table : kAvx2Table;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(IsaLevel isa, int threads)
      : isa_(isa),
        table_(TableFor(isa)),
        pool_(threads),
        linear_(table_, pool_),
        attention_(isa, pool_) {}

  BackendInfo info() const override {
    return {.name = "cpu", .isa = std::string(IsaName(isa_)), .num_threads = pool_.num_threads()};
  }

  absl::StatusOr<std::unique_ptr<LinearWeights>> PackLinear(
      std::span<const MatrixSource* const> sources, WeightFormat format) override {
    return PackedWeights::Pack(sources, format, pool_);
  }

  std::unique_ptr<LinearInput> NewLinearInput(std::int32_t max_rows,
                                              std::int32_t features) override {
    auto buffer = AlignedBuffer::Allocate(static_cast<std::size_t>(max_rows) *
                                          CpuLinearInput::StrideFor(features) * sizeof(float));
    QUIRE_CHECK(buffer.ok()) << buffer.status().ToString();
    return std::make_unique<CpuLinearInput>(max_rows, features, *std::move(buffer));
  }

  absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvGeometry& geometry,
                                                      std::int64_t num_blocks) override {
    return attention_.NewKvCache(geometry, num_blocks);
  }

  AttentionPlanOptions PlanOptions(const AttentionShape& shape) const override {
    return attention_.PlanOptions(shape);
  }

  void CopyBlocks(KvCache& cache, std::span<const BlockCopy> copies) override {
    attention_.CopyBlocks(cache, copies);
  }

  void Embed(const LinearWeights& table, std::span<const TokenId> ids, MatrixView out) override {
    const auto& weights = static_cast<const PackedWeights&>(table);
    QUIRE_DCHECK(out.cols == weights.in_features()) << out.cols;
    ForRows(static_cast<std::int32_t>(ids.size()), 8 * out.cols, [&](std::int32_t r) {
      const TokenId id = ids[static_cast<std::size_t>(r)];
      QUIRE_DCHECK(id >= 0 && id < weights.out_features()) << id;
      weights.UnpackRow(id, out.row(r));
    });
  }

  void Norm(MatrixView x, std::span<const float> gain, float epsilon, LinearInput& out) override {
    auto& input = static_cast<CpuLinearInput&>(out);
    QUIRE_DCHECK(x.rows <= input.max_rows() && x.cols == input.features());
    QUIRE_DCHECK(gain.size() == static_cast<std::size_t>(x.cols));
    ForRows(x.rows, x.cols, [&](std::int32_t r) {
      table_.rms_norm(x.row(r), gain.data(), x.cols, epsilon, input.row(r));
    });
  }

  void Linear(const LinearWeights& weights, const LinearInput& input, Epilogue epilogue,
              MatrixView out) override {
    linear_.Run(static_cast<const PackedWeights&>(weights),
                static_cast<const CpuLinearInput&>(input), epilogue, out);
  }

  void RopeAndWriteKv(const RopeTable& rope, const AttentionShape& shape, const BatchView& batch,
                      std::int32_t layer, MatrixView qkv, KvCache& cache) override {
    attention_.RopeAndWriteKv(rope, shape, batch, layer, qkv, cache);
  }

  void Attention(const AttentionShape& shape, const BatchView& batch, const AttentionPlan& plan,
                 std::int32_t layer, MatrixView qkv, const KvCache& cache,
                 LinearInput& out) override {
    attention_.Attention(shape, batch, plan, layer, qkv, cache, static_cast<CpuLinearInput&>(out));
  }

  void GatedActivation(Activation activation, MatrixView x, LinearInput& out) override {
    auto& input = static_cast<CpuLinearInput&>(out);
    QUIRE_DCHECK(x.rows <= input.max_rows() && x.cols == 2 * input.features());
    const auto gate = activation == Activation::kSilu ? table_.silu_gate : table_.gelu_tanh_gate;
    const std::int32_t size = input.features();
    ForRows(x.rows, 4 * size,
            [&](std::int32_t r) { gate(x.row(r), x.row(r) + size, size, input.row(r)); });
  }

  void GatherRows(MatrixView x, std::span<const std::int32_t> rows, MatrixView out) override {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(out.row(static_cast<std::int32_t>(i)), x.row(rows[i]),
                  static_cast<std::size_t>(x.cols) * sizeof(float));
    }
  }

  void Sample(MatrixView logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override {
    pool_.ParallelFor(static_cast<std::int64_t>(rows.size()), [&](std::int64_t i, int worker) {
      SampleOne({logits.row(static_cast<std::int32_t>(i)), static_cast<std::size_t>(logits.cols)},
                rows[i], sample_scratch_[worker], results[i]);
    });
  }

 private:
  // body(r) for every row, on all workers if that is worth waking them. `row_cost`: vectorised
  // operations on a float, roughly.
  template <class Body>
  void ForRows(std::int32_t rows, std::int64_t row_cost, Body&& body) {
    constexpr std::int64_t kItemCost = 1 << 14;  // About a microsecond.
    const std::int64_t rows_per_item = std::max<std::int64_t>(1, kItemCost / row_cost);
    pool_.ParallelFor(
        (rows + rows_per_item - 1) / rows_per_item, [&](std::int64_t item, int /*worker*/) {
          const std::int64_t first = item * rows_per_item;
          const std::int64_t last = std::min<std::int64_t>(first + rows_per_item, rows);
          for (std::int64_t r = first; r < last; ++r) {
            body(static_cast<std::int32_t>(r));
          }
        });
  }

  IsaLevel isa_;
  const IsaTable& table_;
  ThreadPool pool_;
  LinearOps linear_;
  AttentionOps attention_;
  std::vector<SampleScratch> sample_scratch_ =
      std::vector<SampleScratch>(static_cast<std::size_t>(pool_.num_threads()));
};

}  // namespace
}  // namespace cpu

absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(const CpuBackendOptions& options) {
  if (options.threads < 1 || options.threads > 1024) {
    return InvalidArgument("threads must be in [1, 1024], got {}", options.threads);
  }
  QUIRE_ASSIGN_OR_RETURN(const cpu::IsaLevel isa, cpu::SelectIsa(options.isa));
  return std::make_unique<cpu::CpuBackend>(isa, options.threads);
}

}  // namespace quire::kernels
