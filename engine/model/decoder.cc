#include "engine/model/decoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "engine/model/llama_files.h"
#include "engine/model/rope.h"
#include "engine/model/weight_names.h"
#include "kernels/attention_planner.h"

namespace quire::engine::model {
namespace {

using kernels::Backend;
using kernels::BatchView;
using kernels::Epilogue;
using kernels::LinearInput;
using kernels::LinearWeights;
using kernels::MatrixView;
using kernels::WeightFormat;

WeightFormat FormatFor(const TensorInfo& stored, WeightDtype dtype) {
  const std::string& tensor_type = stored.type;
  if (dtype == WeightDtype::kF32) return WeightFormat::kF32;
  if (dtype == WeightDtype::kBf16 || tensor_type == "BF16") return WeightFormat::kBf16;
  if (tensor_type == "Q4_0" || tensor_type == "Q4_1") return WeightFormat::kInt4Group32;
  if (tensor_type == "Q8_0") return WeightFormat::kInt8Group32;
  return WeightFormat::kF32;
}

// Rows of floats for activations, on 64-byte lines; committed when first written.
class ActivationBuffer {
 public:
  static absl::StatusOr<ActivationBuffer> Allocate(std::int64_t max_rows, std::int64_t cols) {
    const std::int64_t stride = (cols + 15) / 16 * 16;
    const std::int64_t bytes = max_rows * stride * std::int64_t{sizeof(float)};
    auto* data = static_cast<float*>(
        ::operator new(static_cast<std::size_t>(bytes), kAlignment, std::nothrow));
    if (data == nullptr) {
      return ResourceExhausted("cannot allocate {} bytes for {} x {} activations", bytes, max_rows,
                               cols);
    }
    ActivationBuffer buffer;
    buffer.data_.reset(data);
    buffer.cols_ = static_cast<std::int32_t>(cols);
    buffer.stride_ = stride;
    buffer.bytes_ = bytes;
    return buffer;
  }

  MatrixView View(std::int32_t rows) const {
    return {.data = data_.get(), .rows = rows, .cols = cols_, .stride = stride_};
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<float, Free> data_;
  std::int32_t cols_ = 0;
  std::int64_t stride_ = 0, bytes_ = 0;
};

// Matrices that share their input and whose outputs lie side by side. One packed object where their
// formats agree, several where a file mixes types.
struct LinearGroup {
  // As Backend::Linear, for all of them.
  void Run(Backend& backend, const LinearInput& input, Epilogue epilogue, MatrixView out) const {
    for (const auto& part : parts) {
      out.cols = part->out_features();
      backend.Linear(*part, input, epilogue, out);
      out.data += out.cols;
    }
  }

  std::vector<std::unique_ptr<LinearWeights>> parts;
};

struct Layer {
  std::vector<float> attention_norm, ffn_norm;  // [hidden]
  LinearGroup qkv, o, gate_up, down;
};

struct Weights {
  std::unique_ptr<LinearWeights> embed;  // Also the head when `head` is null.
  std::unique_ptr<LinearWeights> head;
  std::vector<float> final_norm;
  std::vector<Layer> layers;
  std::int64_t bytes = 0;
  std::set<std::string_view> layer_formats;
};

class Packer {
 public:
  Packer(const ModelFiles& files, Backend& backend, WeightDtype dtype,
         const Decoder::Progress& progress)
      : files_(files), backend_(backend), dtype_(dtype), progress_(progress) {
    for (const ExpectedTensor& tensor : ExpectedTensors(files.config())) {
      total_bytes_ += Stored(tensor.name).bytes;
    }
  }

  absl::StatusOr<Weights> Run() {
    Report();
    Weights weights;
    QUIRE_ASSIGN_OR_RETURN(weights.embed, PackOne(kEmbed));
    for (int i = 0; i < files_.config().num_layers; ++i) {
      QUIRE_ASSIGN_OR_RETURN(Layer layer, PackLayer(i));
      weights.layers.push_back(std::move(layer));
    }
    QUIRE_ASSIGN_OR_RETURN(weights.final_norm, ReadNorm(std::string(kFinalNorm)));
    if (!files_.config().tie_embeddings) {
      QUIRE_ASSIGN_OR_RETURN(weights.head, PackOne(kHead));
    }
    weights.bytes = bytes_;
    weights.layer_formats = std::move(layer_formats_);
    return weights;
  }

 private:
  // ModelFiles has checked that every tensor is there.
  const TensorInfo& Stored(std::string_view name) const {
    const TensorInfo* stored = files_.Stored(name);
    QUIRE_CHECK(stored != nullptr) << name;
    return *stored;
  }
  WeightFormat Format(std::string_view name) const { return FormatFor(Stored(name), dtype_); }

  absl::StatusOr<Layer> PackLayer(int index) {
    const auto name = [&](std::string_view part) { return LayerWeight(index, part); };
    Layer layer;
    QUIRE_ASSIGN_OR_RETURN(layer.attention_norm, ReadNorm(name(kAttentionNorm)));
    QUIRE_ASSIGN_OR_RETURN(layer.qkv, PackGroup({name(kQProj), name(kKProj), name(kVProj)}));
    QUIRE_ASSIGN_OR_RETURN(layer.o, PackGroup({name(kOProj)}));
    QUIRE_ASSIGN_OR_RETURN(layer.ffn_norm, ReadNorm(name(kFfnNorm)));
    QUIRE_ASSIGN_OR_RETURN(layer.gate_up, PackGroup({name(kGateProj), name(kUpProj)}));
    QUIRE_ASSIGN_OR_RETURN(layer.down, PackGroup({name(kDownProj)}));
    return layer;
  }

  absl::StatusOr<LinearGroup> PackGroup(const std::vector<std::string>& names) {
    LinearGroup group;
    for (std::size_t begin = 0; begin < names.size();) {
      const WeightFormat format = Format(names[begin]);
      std::size_t end = begin + 1;
      while (end < names.size() && Format(names[end]) == format) {
        ++end;
      }
      QUIRE_ASSIGN_OR_RETURN(auto packed, Pack({names.data() + begin, end - begin}, format));
      layer_formats_.insert(kernels::WeightFormatName(format));
      group.parts.push_back(std::move(packed));
      begin = end;
    }
    return group;
  }

  absl::StatusOr<std::unique_ptr<LinearWeights>> PackOne(std::string_view name) {
    const std::string owned(name);
    return Pack({&owned, 1}, Format(name));
  }

  absl::StatusOr<std::unique_ptr<LinearWeights>> Pack(std::span<const std::string> names,
                                                      WeightFormat format) {
    std::vector<std::unique_ptr<kernels::MatrixSource>> matrices;
    std::vector<const kernels::MatrixSource*> sources;
    for (const std::string& name : names) {
      QUIRE_ASSIGN_OR_RETURN(auto matrix, files_.Matrix(name));
      done_bytes_ += Stored(name).bytes;
      sources.push_back(matrix.get());
      matrices.push_back(std::move(matrix));
    }
    auto packed = backend_.PackLinear(sources, format);
    if (!packed.ok()) return AddNames(packed.status(), names);
    bytes_ += (*packed)->bytes();
    Report();
    return packed;
  }

  // The rows of several matrices are counted through.
  absl::Status AddNames(const absl::Status& status, std::span<const std::string> names) const {
    std::string stored;
    for (const std::string& name : names) {
      stored += (stored.empty() ? "" : " + ") + Stored(name).name;
    }
    return absl::Status(status.code(), fmt::format("{}: tensor {}: {}", files_.source(), stored,
                                                   AsStd(status.message())));
  }

  absl::StatusOr<std::vector<float>> ReadNorm(const std::string& name) {
    QUIRE_ASSIGN_OR_RETURN(auto gain, files_.Vector(name));
    done_bytes_ += Stored(name).bytes;
    bytes_ += std::ssize(gain) * std::int64_t{sizeof(float)};
    return gain;
  }

  void Report() const {
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

  const ModelFiles& files_;
  Backend& backend_;
  const WeightDtype dtype_;
  const Decoder::Progress& progress_;
  std::int64_t done_bytes_ = 0, total_bytes_ = 0;  // Of the file.
  std::int64_t bytes_ = 0;                         // Packed.
  std::set<std::string_view> layer_formats_;
};

class LlamaDecoder final : public Decoder {
 public:
  LlamaDecoder(const ModelConfig& config, Backend& backend, const DecoderOptions& options,
               Weights weights)
      : config_(config),
        backend_(backend),
        options_(options),
        weights_(std::move(weights)),
        rope_(RopeTableFor(config.rope, options.max_positions)),
        attention_{.num_heads = config.num_heads,
                   .num_kv_heads = config.num_kv_heads,
                   .head_dim = config.head_dim,
                   .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
                   .sliding_window = config.sliding_window},
        plan_options_(backend.PlanOptions(attention_)) {}

  absl::Status AllocateActivations() {
    const std::int32_t rows = options_.max_batched_tokens;
    const std::int32_t logits_rows = options_.max_logits_rows;
    const std::int32_t width = config_.num_heads * config_.head_dim;
    const std::int32_t kv_width = config_.num_kv_heads * config_.head_dim;
    const auto allocate = [this](ActivationBuffer& buffer, std::int64_t max_rows,
                                 std::int64_t cols) -> absl::Status {
      QUIRE_ASSIGN_OR_RETURN(buffer, ActivationBuffer::Allocate(max_rows, cols));
      activation_bytes_ += buffer.bytes();
      return absl::OkStatus();
    };
    QUIRE_RETURN_IF_ERROR(allocate(residual_, rows, config_.hidden_size));
    QUIRE_RETURN_IF_ERROR(allocate(qkv_, rows, width + 2 * kv_width));
    QUIRE_RETURN_IF_ERROR(allocate(gate_up_, rows, 2 * std::int64_t{config_.intermediate_size}));
    QUIRE_RETURN_IF_ERROR(allocate(gathered_, logits_rows, config_.hidden_size));
    QUIRE_RETURN_IF_ERROR(allocate(logits_, logits_rows, config_.vocab_size));
    const auto new_input = [this](std::int32_t max_rows, std::int32_t features) {
      activation_bytes_ += std::int64_t{max_rows} * features * std::int64_t{sizeof(float)};
      return backend_.NewLinearInput(max_rows, features);
    };
    normed_ = new_input(std::max(rows, logits_rows), config_.hidden_size);
    attended_ = new_input(rows, width);
    activated_ = new_input(rows, config_.intermediate_size);
    return absl::OkStatus();
  }

  void Forward(const BatchView& batch, kernels::KvCache& cache) override {
    const std::int32_t rows = batch.num_tokens();
    QUIRE_DCHECK(rows <= options_.max_batched_tokens);
    const MatrixView residual = residual_.View(rows), qkv = qkv_.View(rows),
                     gate_up = gate_up_.View(rows);
    backend_.Embed(*weights_.embed, batch.token_ids, residual);
    kernels::PlanAttention(batch, plan_options_, plan_);
    for (std::int32_t i = 0; i < config_.num_layers; ++i) {
      const Layer& layer = weights_.layers[static_cast<std::size_t>(i)];
      backend_.Norm(residual, layer.attention_norm, config_.rms_norm_epsilon, *normed_);
      layer.qkv.Run(backend_, *normed_, Epilogue::kStore, qkv);
      backend_.RopeAndWriteKv(rope_, attention_, batch, i, qkv, cache);
      backend_.Attention(attention_, batch, plan_, i, qkv, cache, *attended_);
      layer.o.Run(backend_, *attended_, Epilogue::kAdd, residual);
      backend_.Norm(residual, layer.ffn_norm, config_.rms_norm_epsilon, *normed_);
      layer.gate_up.Run(backend_, *normed_, Epilogue::kStore, gate_up);
      backend_.GatedActivation(config_.activation, gate_up, *activated_);
      layer.down.Run(backend_, *activated_, Epilogue::kAdd, residual);
      progress_.fetch_add(1, std::memory_order_relaxed);
    }
    num_rows_ = rows;
    logits_rows_.assign(batch.logits_rows.begin(), batch.logits_rows.end());
  }

  MatrixView Logits(std::int32_t first, std::int32_t count) override {
    QUIRE_DCHECK(count <= options_.max_logits_rows && first + count <= std::ssize(logits_rows_));
    const std::span<const std::int32_t> rows(logits_rows_.data() + first,
                                             static_cast<std::size_t>(count));
    const MatrixView gathered = gathered_.View(count), logits = logits_.View(count);
    backend_.GatherRows(residual_.View(num_rows_), rows, gathered);
    backend_.Norm(gathered, weights_.final_norm, config_.rms_norm_epsilon, *normed_);
    backend_.Linear(head(), *normed_, Epilogue::kStore, logits);
    return logits;
  }

  std::uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }
  const ModelConfig& config() const override { return config_; }
  std::int64_t weight_bytes() const override { return weights_.bytes; }
  std::int64_t activation_bytes() const override { return activation_bytes_; }
  std::string weight_format_summary() const override {
    std::string summary = fmt::format("{}", fmt::join(weights_.layer_formats, " + "));
    const std::string_view head_format = kernels::WeightFormatName(head().format());
    if (summary != head_format) summary += fmt::format(" + {} head", head_format);
    return summary;
  }

 private:
  const LinearWeights& head() const { return weights_.head ? *weights_.head : *weights_.embed; }

  const ModelConfig config_;
  Backend& backend_;
  const DecoderOptions options_;
  const Weights weights_;
  const kernels::RopeTable rope_;
  const kernels::AttentionShape attention_;
  const kernels::AttentionPlanOptions plan_options_;
  kernels::AttentionPlan plan_;

  ActivationBuffer residual_;  // [T, hidden]; kept after Forward for Logits.
  ActivationBuffer qkv_;       // [T, (heads + 2 * kv_heads) * head_dim]
  ActivationBuffer gate_up_;   // [T, 2 * intermediate]
  ActivationBuffer gathered_;  // [max_logits_rows, hidden]
  ActivationBuffer logits_;    // [max_logits_rows, vocab]
  std::unique_ptr<LinearInput> normed_, attended_, activated_;
  std::int64_t activation_bytes_ = 0;

  std::atomic<std::uint64_t> progress_ = 0;
  std::int32_t num_rows_ = 0;  // Of the last Forward.
  std::vector<std::int32_t> logits_rows_;
};

absl::Status CheckOptions(const ModelConfig& config, const DecoderOptions& options) {
  const auto positive = [](std::string_view name, std::int32_t value) -> absl::Status {
    if (value >= 1) return absl::OkStatus();
    return InvalidArgument("{} must be at least 1, got {}", name, value);
  };
  QUIRE_RETURN_IF_ERROR(positive("max_batched_tokens", options.max_batched_tokens));
  QUIRE_RETURN_IF_ERROR(positive("max_logits_rows", options.max_logits_rows));
  if (options.max_positions < 0 || options.max_positions > config.max_positions) {
    return InvalidArgument("max_model_len must be in [1, {}] for this model, got {}",
                           config.max_positions, options.max_positions);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Load(const ModelFiles& files, Backend& backend,
                                                       const DecoderOptions& options,
                                                       const Progress& progress) {
  const ModelConfig& config = files.config();
  QUIRE_RETURN_IF_ERROR(CheckOptions(config, options));
  DecoderOptions settled = options;
  if (settled.max_positions == 0) settled.max_positions = config.max_positions;
  QUIRE_ASSIGN_OR_RETURN(Weights weights,
                         Packer(files, backend, options.weight_dtype, progress).Run());
  auto decoder = std::make_unique<LlamaDecoder>(config, backend, settled, std::move(weights));
  QUIRE_RETURN_IF_ERROR(decoder->AllocateActivations());
  return std::unique_ptr<Decoder>(std::move(decoder));
}

}  // namespace quire::engine::model
