#include "engine/model/llama_files.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/status.h"
#include "engine/model/weight_names.h"

namespace quire::engine::model {
namespace {

struct WeightName {
  std::string_view weight, gguf, hugging_face;
};

constexpr std::array<WeightName, 3> kModelWeights = {{
    {kEmbed, "token_embd.weight", "model.embed_tokens.weight"},
    {kFinalNorm, "output_norm.weight", "model.norm.weight"},
    {kHead, "output.weight", "lm_head.weight"},
}};

// After "blk.3." and "model.layers.3.".
constexpr std::array<WeightName, 9> kLayerWeights = {{
    {kAttentionNorm, "attn_norm.weight", "input_layernorm.weight"},
    {kQProj, "attn_q.weight", "self_attn.q_proj.weight"},
    {kKProj, "attn_k.weight", "self_attn.k_proj.weight"},
    {kVProj, "attn_v.weight", "self_attn.v_proj.weight"},
    {kOProj, "attn_output.weight", "self_attn.o_proj.weight"},
    {kFfnNorm, "ffn_norm.weight", "post_attention_layernorm.weight"},
    {kGateProj, "ffn_gate.weight", "mlp.gate_proj.weight"},
    {kUpProj, "ffn_up.weight", "mlp.up_proj.weight"},
    {kDownProj, "ffn_down.weight", "mlp.down_proj.weight"},
}};

// Translates `weight`; "layers.N." becomes `layer_prefix` with N.
std::string Translate(std::string_view weight, std::string_view layer_prefix,
                      std::string_view WeightName::*column) {
  for (const WeightName& entry : kModelWeights) {
    if (entry.weight == weight) return std::string(entry.*column);
  }
  constexpr std::string_view kLayers = "layers.";
  const std::size_t dot = weight.rfind('.');
  if (!weight.starts_with(kLayers) || dot == std::string_view::npos || dot < kLayers.size()) {
    return std::string(weight);
  }
  const std::string_view number = weight.substr(kLayers.size(), dot - kLayers.size());
  for (const WeightName& entry : kLayerWeights) {
    if (entry.weight == weight.substr(dot + 1)) {
      return fmt::format("{}{}.{}", layer_prefix, number, entry.*column);
    }
  }
  return std::string(weight);
}

// The first few of `items`, and how many more there are.
std::string FirstFew(const std::vector<std::string>& items) {
  constexpr std::size_t kShown = 12;
  const auto end = items.begin() + static_cast<std::ptrdiff_t>(std::min(items.size(), kShown));
  std::string text = fmt::format("{}", fmt::join(items.begin(), end, "; "));
  if (items.size() > kShown) text += fmt::format("; and {} more", items.size() - kShown);
  return text;
}

}  // namespace

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size,
                     vocab = config.vocab_size;
  const std::int64_t q = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv = std::int64_t{config.num_kv_heads} * config.head_dim;
  std::vector<ExpectedTensor> expected = {{std::string(kEmbed), {vocab, hidden}},
                                          {std::string(kFinalNorm), {hidden}}};
  if (!config.tie_embeddings) expected.push_back({std::string(kHead), {vocab, hidden}});
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const auto add = [&](std::string_view part, std::vector<std::int64_t> shape) {
      expected.push_back({LayerWeight(layer, part), std::move(shape)});
    };
    add(kAttentionNorm, {hidden});
    add(kQProj, {q, hidden});
    add(kKProj, {kv, hidden});
    add(kVProj, {kv, hidden});
    add(kOProj, {hidden, q});
    add(kFfnNorm, {hidden});
    add(kGateProj, {ffn, hidden});
    add(kUpProj, {ffn, hidden});
    add(kDownProj, {hidden, ffn});
  }
  return expected;
}

std::string GgufTensorName(std::string_view weight) {
  return Translate(weight, "blk.", &WeightName::gguf);
}

std::string HuggingFaceTensorName(std::string_view weight) {
  return Translate(weight, "model.layers.", &WeightName::hugging_face);
}

absl::Status CheckConfig(const std::string& source, const ModelConfig& config) {
  if (config.num_heads % config.num_kv_heads != 0) {
    return InvalidArgument("{}: {} attention heads are not a multiple of {} KV heads", source,
                           config.num_heads, config.num_kv_heads);
  }
  constexpr std::int64_t kMaxWidth = 1 << 20;
  const std::int64_t width =
      std::int64_t{config.num_heads + 2 * config.num_kv_heads} * config.head_dim;
  if (width > kMaxWidth) {
    return InvalidArgument("{}: {} + 2 x {} heads of size {} are wider than the {} supported",
                           source, config.num_heads, config.num_kv_heads, config.head_dim,
                           kMaxWidth);
  }
  const std::int32_t rotary_dim = config.rope.rotary_dim;
  if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > config.head_dim) {
    return InvalidArgument("{}: {} rotary dimensions; must be even and in [2, head size {}]",
                           source, rotary_dim, config.head_dim);
  }
  return absl::OkStatus();
}

LlamaFiles::LlamaFiles(LlamaModel model) : model_(std::move(model)) {}

absl::Status LlamaFiles::CheckFound(const ExpectedTensor& expected, const StoredTensor& found,
                                    std::vector<std::string>& problems) const {
  if (found.shape != expected.shape) {
    problems.push_back(fmt::format("{} has shape {} instead of {}", found.name,
                                   ShapeString(found.shape), ShapeString(expected.shape)));
  } else if (found.shape.size() == 1 && TensorBlockElements(found.type) != 1) {
    return Unimplemented("{}: tensor {} is a vector of type {}; F32, F16 and BF16 are supported",
                         model_.source, found.name, TensorTypeName(found.type));
  }
  return absl::OkStatus();
}

absl::Status LlamaFiles::MatchTensors(
    const std::function<std::string(std::string_view)>& file_name) {
  std::unordered_map<std::string_view, std::size_t> unmatched;
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    infos_.push_back(model_.tensors[i].info());
    unmatched.emplace(model_.tensors[i].name, i);
  }
  std::unordered_map<std::string_view, const UnsupportedTensor*> unsupported;
  for (const UnsupportedTensor& tensor : model_.unsupported_tensors) {
    unsupported.emplace(tensor.name, &tensor);
  }
  std::vector<std::string> problems;
  for (const ExpectedTensor& expected : ExpectedTensors(model_.config)) {
    const std::string name = file_name(expected.name);
    if (const auto found = unsupported.find(name); found != unsupported.end()) {
      return Unimplemented("{}: tensor {} has type {}, which is not supported", model_.source, name,
                           found->second->type);
    }
    const auto found = unmatched.find(name);
    if (found == unmatched.end()) {
      problems.push_back(fmt::format("{} is missing", name));
      continue;
    }
    const StoredTensor& tensor = model_.tensors[found->second];
    QUIRE_RETURN_IF_ERROR(CheckFound(expected, tensor, problems));
    model_.config.num_parameters += tensor.elements();
    by_weight_.emplace(expected.name, found->second);
    unmatched.erase(found);
  }
  if (!problems.empty()) {
    return InvalidArgument("{}: {} of the tensors that the configuration asks for: {}",
                           model_.source, problems.size(), FirstFew(problems));
  }
  std::vector<std::string> unknown;
  for (const auto& [name, index] : unmatched) unknown.emplace_back(name);
  for (const auto& [name, tensor] : unsupported) unknown.emplace_back(name);
  std::sort(unknown.begin(), unknown.end());
  for (const std::string& name : unknown) {
    if (name.ends_with(".bias")) {
      return Unimplemented("{}: tensor {}: biases are not supported", model_.source, name);
    }
  }
  if (!unknown.empty()) {
    model_.warnings.push_back(
        fmt::format("{}: unknown tensors are ignored: {}", model_.source, FirstFew(unknown)));
  }
  const absl::Status defaults =
      sampling::Resolve({}, model_.sampling_defaults).Validate(model_.config.vocab_size);
  if (!defaults.ok()) {
    return InvalidArgument("{}: the model's sampling defaults are wrong: {}", model_.source,
                           AsStd(defaults.message()));
  }
  std::erase_if(model_.eos_token_ids, [&](TokenId id) {
    if (id >= 0 && id < model_.config.vocab_size) return false;
    model_.warnings.push_back(
        fmt::format("{}: end-of-sequence id {} is outside the vocabulary of {} and ignored",
                    model_.source, id, model_.config.vocab_size));
    return true;
  });
  return absl::OkStatus();
}

absl::StatusOr<const StoredTensor*> LlamaFiles::Find(std::string_view name) const {
  const auto found = by_weight_.find(name);
  if (found == by_weight_.end()) return NotFound("{}: there is no weight {}", model_.source, name);
  return &model_.tensors[found->second];
}

absl::StatusOr<std::unique_ptr<kernels::MatrixSource>> LlamaFiles::Matrix(
    std::string_view name) const {
  QUIRE_ASSIGN_OR_RETURN(const StoredTensor* tensor, Find(name));
  if (tensor->shape.size() != 2) return InvalidArgument("weight {} is not a matrix", name);
  return ReadMatrix(*tensor);
}

absl::StatusOr<std::vector<float>> LlamaFiles::Vector(std::string_view name) const {
  QUIRE_ASSIGN_OR_RETURN(const StoredTensor* tensor, Find(name));
  if (tensor->shape.size() != 1) return InvalidArgument("weight {} is not a vector", name);
  return ReadVector(*tensor);
}

const TensorInfo* LlamaFiles::Stored(std::string_view name) const {
  const auto found = by_weight_.find(name);
  return found == by_weight_.end() ? nullptr : &infos_[found->second];
}

}  // namespace quire::engine::model
