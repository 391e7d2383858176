// What the GGUF and the Hugging Face reader share: the Llama family's list of tensors, matched by
// name and shape against what a file holds, and the ModelFiles over the result.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "engine/model/tensor.h"

namespace quire::engine::model {

// A tensor that every model of the family has.
struct ExpectedTensor {
  std::string name;  // weight_names.h
  std::vector<std::int64_t> shape;
};
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

// The file's own name of a weight, e.g. "layers.3.q_proj" -> "blk.3.attn_q.weight".
std::string GgufTensorName(std::string_view weight);
std::string HuggingFaceTensorName(std::string_view weight);

// Relations between hyperparameters that no single key can show: heads a multiple of KV heads, an
// even head size, products within range. `source` begins the message (a path).
absl::Status CheckConfig(const std::string& source, const ModelConfig& config);

// A tensor whose element type is known but not read.
struct UnsupportedTensor {
  std::string name, type;
};

// Everything that a reader found out.
struct LlamaModel {
  std::string source;  // Path, for messages.
  std::string name;
  ModelConfig config;
  std::vector<StoredTensor> tensors;
  std::vector<UnsupportedTensor> unsupported_tensors;
  std::string chat_template;
  std::vector<TokenId> eos_token_ids;
  sampling::SamplingDefaults sampling_defaults;
  std::vector<std::string> warnings;
};

// ModelFiles without the tokenizer, which each format has in its own place.
class LlamaFiles : public ModelFiles {
 public:
  const ModelConfig& config() const override { return model_.config; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  std::string_view name() const override { return model_.name; }
  std::string_view source() const override { return model_.source; }
  absl::StatusOr<std::unique_ptr<kernels::MatrixSource>> Matrix(
      std::string_view name) const override;
  absl::StatusOr<std::vector<float>> Vector(std::string_view name) const override;
  const TensorInfo* Stored(std::string_view name) const override;
  std::string_view chat_template() const override { return model_.chat_template; }
  const std::vector<TokenId>& eos_token_ids() const override { return model_.eos_token_ids; }
  const sampling::SamplingDefaults& sampling_defaults() const override {
    return model_.sampling_defaults;
  }
  const std::vector<std::string>& warnings() const override { return model_.warnings; }

 protected:
  explicit LlamaFiles(LlamaModel model);

  // Finds every expected tensor by the name that `file_name` gives it. INVALID_ARGUMENT listing
  // all that are missing or have a wrong shape; biases are refused by name, since leaving them out
  // would change the answers; other unknown tensors become warnings. Counts the parameters. Also
  // drops end-of-sequence ids outside the vocabulary, with a warning.
  absl::Status MatchTensors(const std::function<std::string(std::string_view)>& file_name);

  LlamaModel model_;

 private:
  absl::Status CheckFound(const ExpectedTensor& expected, const StoredTensor& found,
                          std::vector<std::string>& problems) const;
  absl::StatusOr<const StoredTensor*> Find(std::string_view name) const;

  std::vector<TensorInfo> infos_;                              // As model_.tensors.
  std::map<std::string, std::size_t, std::less<>> by_weight_;  // Index into both.
};

}  // namespace quire::engine::model
