// A model as it lies on disk, opened and checked: hyperparameters, tensors, tokenizer, defaults.
//
// A GGUF file or a Hugging Face folder (config.json, *.safetensors, tokenizer.json). Files are
// memory-mapped and every size in them is checked before it is used; errors name the file and the
// key, tensor or offset.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
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
  float rms_norm_epsilon = 1e-5F;
  RopeConfig rope;
  kernels::Activation activation = kernels::Activation::kSilu;
  bool tie_embeddings = false;
  std::int64_t num_parameters = 0;
};

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

  // The matrix called `name` in the family's own naming ("layers.3.q_proj", "embed", "head", …; see
  // weight_names.h). Lives as long as this object. NOT_FOUND names what is missing.
  virtual absl::StatusOr<const kernels::MatrixSource*> Matrix(std::string_view name) const = 0;
  // A vector (norm gain), as f32.
  virtual absl::StatusOr<std::vector<float>> Vector(std::string_view name) const = 0;

  // Null when the files hold none; an error when they hold one that is not supported.
  virtual absl::StatusOr<std::unique_ptr<text::Tokenizer>> LoadTokenizer() const = 0;
  virtual std::string_view chat_template() const = 0;  // Jinja source, or empty.
  virtual const std::vector<TokenId>& eos_token_ids() const = 0;
  virtual const sampling::SamplingDefaults& sampling_defaults() const = 0;
};

// Opens `path` (a .gguf file or a folder) and checks that every tensor that the architecture needs
// is there with the right shape; unknown tensors are warned about, missing ones listed.
absl::StatusOr<std::unique_ptr<ModelFiles>> OpenModel(const std::string& path);

}  // namespace quire::engine::model
