// A model as it lies on disk, opened and checked: hyperparameters, tensors, tokenizer, defaults.
//
// A GGUF file or a Hugging Face folder (config.json, *.safetensors, tokenizer.json). Every size in
// a file is checked before it is used; errors name the file and the key, tensor or offset.
//
// Tensor bytes are copied out of the file when they are asked for (pread; nothing is mapped): a
// file that is cut or rewritten while it is being loaded gives DATA_LOSS, and once a Decoder is
// loaded whatever happens to the file has no effect.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/kv_geometry.h"
#include "engine/sampling/sampling_params.h"
#include "engine/text/tokenizer.h"
#include "kernels/backend.h"

namespace quire::engine::model {

// How rotary frequencies are stretched ("rope_scaling"); others are refused at load.
enum class RopeScaling { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  kernels::RopeStyle style = kernels::RopeStyle::kInterleaved;
  double base = 10000;
  std::int32_t rotary_dim = 0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  std::int32_t original_max_positions = 0;                     // llama3, yarn
  double beta_fast = 32, beta_slow = 1, attention_factor = 0;  // yarn; 0: derived
  // Each inverse frequency is divided by its factor (GGUF's rope_freqs); empty: all 1.
  std::vector<float> frequency_factors = {};  // [rotary_dim / 2]
};

// Hyperparameters of a decoder of the Llama family.
struct ModelConfig {
  std::string architecture;  // "llama"
  std::int32_t num_layers = 0;
  std::int32_t hidden_size = 0;
  std::int32_t intermediate_size = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t vocab_size = 0;
  std::int32_t max_positions = 0;
  std::int32_t sliding_window = 0;  // Keys that a query sees, itself included; 0: all.
  float rms_norm_epsilon = 1e-5F;
  RopeConfig rope;
  kernels::Activation activation = kernels::Activation::kSilu;
  bool tie_embeddings = false;  // The head is the embedding; there is no weight "head".
  std::int64_t num_parameters = 0;
};

// The KV cache that the model needs, with K and V stored alike.
KvGeometry KvGeometryFor(const ModelConfig& config, std::int32_t block_size, KvDtype dtype);

struct TensorInfo {
  std::string name;
  std::string type;                 // As the file calls it: "Q4_1", "BF16", …
  std::vector<std::int64_t> shape;  // Outermost first: [rows, cols].
  std::int64_t bytes = 0;
};

class ModelFiles {
 public:
  virtual ~ModelFiles() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual std::string_view format() const = 0;  // "gguf", "safetensors"
  virtual std::string_view name() const = 0;    // general.name or the folder's name
  virtual std::string_view source() const = 0;  // The path that was opened.

  // A copy of the matrix called `name` in the family's own naming ("layers.3.q_proj", "embed",
  // "head", …; see weight_names.h), independent of this object. NOT_FOUND names what is missing.
  virtual absl::StatusOr<std::unique_ptr<kernels::MatrixSource>> Matrix(
      std::string_view name) const = 0;
  // A vector (norm gain), as f32.
  virtual absl::StatusOr<std::vector<float>> Vector(std::string_view name) const = 0;
  // How the file stores a matrix or vector; null when there is none of that name.
  virtual const TensorInfo* Stored(std::string_view name) const = 0;

  // Null when the files hold none; an error when they hold one that is not supported.
  virtual absl::StatusOr<std::unique_ptr<text::Tokenizer>> LoadTokenizer() const = 0;
  virtual std::string_view chat_template() const = 0;  // Jinja source, or empty.
  // Every end-of-sequence id that the files name: the union of config.json's and
  // generation_config.json's (ids or lists), or of GGUF's eos, eot and eom keys. The one that
  // tokenizer_config.json names is Tokenizer::eos_id(); StartEngine adds it.
  virtual const std::vector<TokenId>& eos_token_ids() const = 0;
  virtual const sampling::SamplingDefaults& sampling_defaults() const = 0;
  // What the user should know but need not stop for: unknown tensors, an ignored head, ….
  virtual const std::vector<std::string>& warnings() const = 0;
};

// Opens `path` (a .gguf file or a folder) and checks that every tensor that the architecture needs
// is there with the right shape; unknown tensors are warned about, missing ones listed.
absl::StatusOr<std::unique_ptr<ModelFiles>> OpenModel(const std::string& path);

}  // namespace quire::engine::model
