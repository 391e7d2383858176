// Builds a running engine out of a model path and the flags of `quire serve`: opens the files,
// chooses the backend, sizes the KV pool, packs the weights, starts the engine. Used by serve and
// by every command that runs a model in its own process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/model/decoder.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace quire::engine {

struct HostOptions {
  std::string model_path;       // A .gguf file or a Hugging Face folder.
  std::string chat_template;    // Name of a built-in; empty: the model's own.
  std::string backend = "cpu";  // "cpu" or "reference".
  std::string isa;              // Forces a level of the CPU backend; empty: the best present.
  std::int32_t threads = 0;     // 0: the CPUs in the affinity mask and the cgroup quota.
  std::int32_t block_size = 16;
  std::optional<std::int64_t> num_blocks;      // At most one of these two;
  std::optional<std::int64_t> kv_cache_bytes;  // neither: see DefaultKvBytes.
  std::int32_t max_model_len = 0;              // 0: the model's own.
  model::WeightDtype weight_dtype = model::WeightDtype::kAuto;
  std::optional<KvDtype> kv_dtype;  // Unset: f16, or f32 when weight_dtype is kF32.
  std::string step_log;             // A file that gets a line for each step; empty: none.
  EngineOptions engine;

  // Everything that can be refused before the model is opened; names the flag and its range.
  absl::Status Validate() const;
};

// What start-up decided, for the table that `serve` prints and for GetServerInfo.
struct HostReport {
  std::string model_name, model_path, model_format, weight_format, backend, isa, kv_dtype,
      chat_template;
  std::int32_t threads = 0;
  std::int64_t weight_bytes = 0, activation_bytes = 0, kv_bytes = 0, kv_bytes_per_token = 0;
  std::int64_t num_blocks = 0;
  std::int32_t block_size = 0, max_model_len = 0;
  std::vector<std::pair<std::string, double>> stage_seconds;  // "open", "pack weights", …
  std::vector<std::string> warnings;
};

// The pool when no size is given: the smaller of a quarter of the available memory and what
// max_num_seqs sequences of max_model_len need.
std::int64_t DefaultKvBytes(const KvGeometry& geometry, std::int32_t max_num_seqs,
                            std::int32_t max_model_len, std::int64_t available_memory_bytes);

// How many blocks the pool gets: what the options ask for, else what `default_bytes` hold.
// INVALID_ARGUMENT with the budget, the bytes per block and the smallest workable budget when that
// is too little to serve even one token.
absl::StatusOr<std::int64_t> NumBlocks(const HostOptions& options, const KvGeometry& geometry,
                                       std::int64_t default_bytes);

struct EngineHost {
  model::ModelConfig config;
  HostReport report;
  std::unique_ptr<kernels::Backend> backend;  // Outlives the engine, which is destroyed first.
  std::shared_ptr<const text::Tokenizer> tokenizer;  // Null when the files hold none.
  std::unique_ptr<Engine> engine;
};

// `progress(stage, done, total)` is called from this thread while it works, in bytes while weights
// are packed and from 0 to 1 for other stages; may be empty. `sink` and `clock` must outlive the
// host.
using HostProgress =
    std::function<void(const std::string& stage, std::int64_t done, std::int64_t total)>;
absl::StatusOr<std::unique_ptr<EngineHost>> StartEngine(const HostOptions& options,
                                                        OutputSink* sink,
                                                        const HostProgress& progress,
                                                        Clock& clock = Clock::Real());

}  // namespace quire::engine
