// The operations that a decoder needs, on plain views. Models are written once over this interface;
// reference/ is the oracle, cpu/ the fast one, cuda/ comes as a third.
//
// Determinism contract (docs/architecture.md, "Determinism"): output row r of every operation is a
// function of its own inputs only: same bits whatever the number of rows, their neighbours, the
// tiling or the number of threads. A backend states its level in BackendInfo::isa; levels may
// differ from each other by rounding.
//
// Ownership: objects made by a backend (weights, inputs, caches) must not outlive it and must only
// be given back to the backend that made them.
// Thread: one thread at a time calls a backend (the engine thread); it may use workers inside.
// Errors: shapes are the caller's contract and are QUIRE_DCHECKed; nothing here fails on data, but
// making objects may run out of memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/kv_geometry.h"
#include "kernels/attention_planner.h"
#include "kernels/batch_view.h"
#include "kernels/sample.h"
#include "kernels/weights.h"

namespace quire::kernels {

// A row-major matrix of floats; row r starts at data + r * stride.
struct MatrixView {
  float* data = nullptr;
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  std::int64_t stride = 0;
  float* row(std::int32_t r) const { return data + r * stride; }
};

// One or several matrices with the same input, packed side by side (Q, K, V; gate and up): the
// output columns follow each other in the order given to PackLinear.
class LinearWeights {
 public:
  virtual ~LinearWeights() = default;
  virtual std::int32_t in_features() const = 0;
  virtual std::int32_t out_features() const = 0;
  virtual WeightFormat format() const = 0;
  virtual std::int64_t bytes() const = 0;
};

// What feeds a Linear: up to max_rows rows of `features`, in whatever form the backend likes (it
// may quantise there). Filled by Norm, Attention or GatedActivation.
class LinearInput {
 public:
  virtual ~LinearInput() = default;
  virtual std::int32_t features() const = 0;
  virtual std::int32_t max_rows() const = 0;
};

// K and V of all blocks and layers. The order inside a block is the backend's secret; slots beyond
// a sequence's length hold anything, NaN included.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual const KvGeometry& geometry() const = 0;
  virtual std::int64_t num_blocks() const = 0;
};

// Which elements of a head's first 2 * half dimensions are rotated together.
enum class RopeStyle {
  kInterleaved,  // (2i, 2i + 1): GGUF files of the llama family.
  kHalves,       // (i, i + half): Hugging Face checkpoints ("rotate half").
};

// Rotation angles, computed once in double by our own code: cos and sin of position * inverse
// frequency, for positions [0, max_positions). rotary_dim = 2 * inverse_frequencies.size().
struct RopeTable {
  RopeStyle style = RopeStyle::kInterleaved;
  std::int32_t rotary_dim = 0;
  std::vector<float> cos;  // [max_positions, rotary_dim / 2]
  std::vector<float> sin;
};

struct AttentionShape {
  std::int32_t num_heads = 0;  // Query heads; query head h reads KV head h / (heads / kv_heads).
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  float scale = 0;                  // Scores are multiplied by this: 1 / sqrt(head_dim) as a rule.
  std::int32_t sliding_window = 0;  // A query sees at most this many keys, itself included; 0: all.
};

enum class Epilogue {
  kStore,  // out = x W^T
  kAdd,    // out += x W^T (the residual connection)
};

enum class Activation { kSilu, kGeluTanh };

struct BackendInfo {
  std::string name;  // "reference", "cpu"
  std::string isa;   // "scalar", "avx2", "avx512"
  std::int32_t num_threads = 1;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendInfo info() const = 0;

  // --- Objects ------------------------------------------------------------------------------

  // Packs matrices that share their input. Every source has the same cols(). kInt4Group32 and
  // kInt8Group32 ask for sources of that encoding with cols % 32 == 0, else INVALID_ARGUMENT.
  // Reads the sources from all workers; the file may go away afterwards.
  virtual absl::StatusOr<std::unique_ptr<LinearWeights>> PackLinear(
      std::span<const MatrixSource* const> sources, WeightFormat format) = 0;
  virtual std::unique_ptr<LinearInput> NewLinearInput(std::int32_t max_rows,
                                                      std::int32_t features) = 0;
  // Memory is reserved here and committed by the system when a block is first written.
  virtual absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvGeometry& geometry,
                                                              std::int64_t num_blocks) = 0;

  // What PlanAttention should be given for `shape`. A function of the shape only.
  virtual AttentionPlanOptions PlanOptions(const AttentionShape& shape) const = 0;

  // --- A step, in the order a decoder uses them ----------------------------------------------

  // Copies whole blocks, all layers, in the order given.
  virtual void CopyBlocks(KvCache& cache, std::span<const BlockCopy> copies) = 0;

  // out[r] = row ids[r] of `table`, as f32. REQUIRES: ids in range. out: [ids.size(), in_features].
  virtual void Embed(const LinearWeights& table, std::span<const TokenId> ids, MatrixView out) = 0;

  // out[r] = x[r] / sqrt(mean(x[r]^2) + epsilon) * gain  (RMSNorm, Zhang and Sennrich 2019).
  virtual void Norm(MatrixView x, std::span<const float> gain, float epsilon, LinearInput& out) = 0;

  // out = or += input W^T, for the first out.rows rows of `input`. out: [rows, out_features].
  virtual void Linear(const LinearWeights& weights, const LinearInput& input, Epilogue epilogue,
                      MatrixView out) = 0;

  // For every token of the batch: rotates the query heads of qkv in place, rotates K, and writes K
  // and V into the token's slot of `layer`. qkv: [T, (heads + 2 * kv_heads) * head_dim], laid out
  // Q, K, V. Runs after CopyBlocks and before Attention of the same layer.
  virtual void RopeAndWriteKv(const RopeTable& rope, const AttentionShape& shape,
                              const BatchView& batch, std::int32_t layer, MatrixView qkv,
                              KvCache& cache) = 0;

  // Causal attention of every row over its sequence's blocks, K and V read as stored (those of the
  // same step too). `plan` comes from PlanAttention(batch, PlanOptions(shape)), once per step.
  // Reads the query heads of qkv; out: [T, heads * head_dim].
  virtual void Attention(const AttentionShape& shape, const BatchView& batch,
                         const AttentionPlan& plan, std::int32_t layer, MatrixView qkv,
                         const KvCache& cache, LinearInput& out) = 0;

  // out[r] = activation(x[r, :f]) * x[r, f:2f], with f = out.features(). x: [rows, 2f].
  virtual void GatedActivation(Activation activation, MatrixView x, LinearInput& out) = 0;

  // out[i] = x[rows[i]].
  virtual void GatherRows(MatrixView x, std::span<const std::int32_t> rows, MatrixView out) = 0;

  // Picks or scores a token per row; row i of `logits` belongs to rows[i] and is overwritten.
  // results: [rows.size()]. Formulas: kernels/sample.h.
  virtual void Sample(MatrixView logits, std::span<const SampleRow> rows,
                      std::span<SampleResult> results) = 0;
};

}  // namespace quire::kernels
