#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/math.h"
#include "kernels/reference/reference_attention.h"
#include "kernels/reference/reference_input.h"
#include "kernels/reference/reference_kv_cache.h"

namespace quire::kernels {
namespace reference {
namespace {

// Dense f32 rows, whatever the format says: rounded to it once, when packed.
class ReferenceLinear final : public LinearWeights {
 public:
  ReferenceLinear(std::int32_t in_features, std::int32_t out_features, WeightFormat format)
      : in_features_(in_features),
        out_features_(out_features),
        format_(format),
        values_(static_cast<std::size_t>(in_features) * out_features) {}

  std::int32_t in_features() const override { return in_features_; }
  std::int32_t out_features() const override { return out_features_; }
  WeightFormat format() const override { return format_; }
  std::int64_t bytes() const override {
    return static_cast<std::int64_t>(values_.size() * sizeof(float));
  }
  std::span<float> row(std::int64_t r) { return {&values_[Offset(r)], RowSize()}; }
  std::span<const float> row(std::int64_t r) const { return {&values_[Offset(r)], RowSize()}; }

 private:
  std::size_t RowSize() const { return static_cast<std::size_t>(in_features_); }
  std::size_t Offset(std::int64_t r) const { return static_cast<std::size_t>(r * in_features_); }

  std::int32_t in_features_;
  std::int32_t out_features_;
  WeightFormat format_;
  std::vector<float> values_;
};

absl::Status CheckSources(std::span<const MatrixSource* const> sources, WeightFormat format) {
  if (sources.empty()) return InvalidArgument("no matrices to pack");
  for (const MatrixSource* source : sources) {
    if (source->cols() != sources[0]->cols()) {
      return InvalidArgument("matrices packed together have {} and {} inputs", sources[0]->cols(),
                             source->cols());
    }
    const bool int8 = format == WeightFormat::kInt8Group32;
    const bool int4 = format == WeightFormat::kInt4Group32;
    if (!int8 && !int4) continue;
    const auto wanted =
        int8 ? MatrixSource::Encoding::kInt8Group32 : MatrixSource::Encoding::kInt4Group32;
    if (source->encoding() != wanted || source->cols() % 32 != 0) {
      return InvalidArgument(
          "format {} needs matrices stored that way, with inputs in groups of 32",
          WeightFormatName(format));
    }
  }
  return absl::OkStatus();
}

double Activate(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1.0 + Exp(-x));
  // 0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
  constexpr double kSqrt2OverPi = 0.7978845608028654;
  return x / (1.0 + Exp(-2.0 * kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}

class ReferenceBackend final : public Backend {
 public:
  BackendInfo info() const override {
    return {.name = "reference", .isa = "scalar", .num_threads = 1};
  }

  absl::StatusOr<std::unique_ptr<LinearWeights>> PackLinear(
      std::span<const MatrixSource* const> sources, WeightFormat format) override {
    QUIRE_RETURN_IF_ERROR(CheckSources(sources, format));
    std::int64_t rows = 0;
    for (const MatrixSource* source : sources) rows += source->rows();
    auto weights = std::make_unique<ReferenceLinear>(static_cast<std::int32_t>(sources[0]->cols()),
                                                     static_cast<std::int32_t>(rows), format);
    std::int64_t target = 0;
    for (const MatrixSource* source : sources) {
      for (std::int64_t r = 0; r < source->rows(); ++r) {
        const std::span<float> row = weights->row(target++);
        source->ReadRow(r, row);
        if (format != WeightFormat::kBf16) continue;
        for (float& value : row) value = Bf16ToF32(F32ToBf16(value));
      }
    }
    return weights;
  }

  std::unique_ptr<LinearInput> NewLinearInput(std::int32_t max_rows,
                                              std::int32_t features) override {
    return std::make_unique<ReferenceInput>(max_rows, features);
  }

  absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvGeometry& geometry,
                                                      std::int64_t num_blocks) override {
    QUIRE_ASSIGN_OR_RETURN(const std::int64_t bytes, cpu::KvCacheBytes(geometry, num_blocks));
    QUIRE_ASSIGN_OR_RETURN(cpu::AlignedBuffer memory,
                           cpu::AlignedBuffer::Allocate(static_cast<std::size_t>(bytes)));
    return std::make_unique<ReferenceKvCache>(geometry, num_blocks, std::move(memory));
  }

  AttentionPlanOptions PlanOptions(const AttentionShape& shape) const override {
    return {.max_q_rows = 16, .kv_split = 256, .sliding_window = shape.sliding_window};
  }

  void CopyBlocks(KvCache& cache, std::span<const BlockCopy> copies) override {
    for (const BlockCopy& copy : copies) static_cast<ReferenceKvCache&>(cache).CopyBlock(copy);
  }

  void Embed(const LinearWeights& table, std::span<const TokenId> ids, MatrixView out) override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto row = static_cast<const ReferenceLinear&>(table).row(ids[i]);
      std::ranges::copy(row, out.row(static_cast<std::int32_t>(i)));
    }
  }

  void Norm(MatrixView x, std::span<const float> gain, float epsilon, LinearInput& out) override {
    const MatrixView target = static_cast<ReferenceInput&>(out).view();
    for (std::int32_t r = 0; r < x.rows; ++r) {
      double squares = 0;
      for (std::int32_t c = 0; c < x.cols; ++c) squares += double{x.row(r)[c]} * x.row(r)[c];
      const double root = std::sqrt(squares / x.cols + double{epsilon});
      for (std::int32_t c = 0; c < x.cols; ++c) {
        target.row(r)[c] = static_cast<float>(x.row(r)[c] / root * gain[c]);
      }
    }
  }

  void Linear(const LinearWeights& weights, const LinearInput& input, Epilogue epilogue,
              MatrixView out) override {
    const auto& matrix = static_cast<const ReferenceLinear&>(weights);
    for (std::int32_t r = 0; r < out.rows; ++r) {
      const float* x = static_cast<const ReferenceInput&>(input).row(r);
      for (std::int32_t o = 0; o < matrix.out_features(); ++o) {
        const std::span<const float> w = matrix.row(o);
        double sum = epilogue == Epilogue::kAdd ? double{out.row(r)[o]} : 0.0;
        for (std::size_t c = 0; c < w.size(); ++c) sum += double{x[c]} * w[c];
        out.row(r)[o] = static_cast<float>(sum);
      }
    }
  }

  void RopeAndWriteKv(const RopeTable& rope, const AttentionShape& shape, const BatchView& batch,
                      std::int32_t layer, MatrixView qkv, KvCache& cache) override {
    reference::RopeAndWriteKv(rope, shape, batch, layer, qkv,
                              static_cast<ReferenceKvCache&>(cache));
  }

  void Attention(const AttentionShape& shape, const BatchView& batch, const AttentionPlan& plan,
                 std::int32_t layer, MatrixView qkv, const KvCache& cache,
                 LinearInput& out) override {
    reference::Attention(shape, batch, plan, layer, qkv,
                         static_cast<const ReferenceKvCache&>(cache),
                         static_cast<ReferenceInput&>(out).view());
  }

  void GatedActivation(Activation activation, MatrixView x, LinearInput& out) override {
    const MatrixView target = static_cast<ReferenceInput&>(out).view();
    for (std::int32_t r = 0; r < x.rows; ++r) {
      for (std::int32_t c = 0; c < out.features(); ++c) {
        const double gate = Activate(activation, x.row(r)[c]);
        target.row(r)[c] = static_cast<float>(gate * x.row(r)[c + out.features()]);
      }
    }
  }

  void GatherRows(MatrixView x, std::span<const std::int32_t> rows, MatrixView out) override {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(x.row(rows[i]), x.cols, out.row(static_cast<std::int32_t>(i)));
    }
  }

  void Sample(MatrixView logits, std::span<const SampleRow> rows,
              std::span<SampleResult> results) override {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      SampleOne({logits.row(static_cast<std::int32_t>(i)), static_cast<std::size_t>(logits.cols)},
                rows[i], sample_scratch_, results[i]);
    }
  }

 private:
  SampleScratch sample_scratch_;
};

}  // namespace
}  // namespace reference

std::unique_ptr<Backend> NewReferenceBackend() {
  return std::make_unique<reference::ReferenceBackend>();
}

}  // namespace quire::kernels
