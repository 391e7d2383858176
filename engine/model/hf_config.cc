#include "engine/model/hf_config.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "engine/model/file.h"
#include "engine/model/json_reader.h"
#include "engine/model/llama_files.h"
#include "engine/model/rope.h"

namespace quire::engine::model {
namespace {

using nlohmann::json;

// eos_token_id: one id or a list of them.
std::vector<TokenId> ReadEosIds(JsonReader& reader) {
  constexpr std::string_view kKey = "eos_token_id";
  const json* value = reader.Find(kKey);
  if (value == nullptr) return {};
  std::vector<TokenId> ids;
  const auto* const ids_in_file =
      value->is_array() ? &value->get_ref<const json::array_t&>() : nullptr;
  const std::size_t count = ids_in_file == nullptr ? 1 : ids_in_file->size();
  for (std::size_t i = 0; i < count; ++i) {
    const json& id = ids_in_file == nullptr ? *value : (*ids_in_file)[i];
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) {
      reader.Fail(
          InvalidArgument("{}: {} must be a token id or a list of them", reader.path(), kKey));
      return {};
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

void CheckArchitecture(JsonReader& reader) {
  std::string architecture;
  const json* list = reader.Find("architectures");
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string()) {
    architecture = list->front().get<std::string>();
  }
  const std::string type = reader.TextOr("model_type", "");
  if (architecture == "LlamaForCausalLM" || architecture == "MistralForCausalLM") return;
  if (architecture.empty() && (type == "llama" || type == "mistral")) return;
  reader.Fail(
      Unimplemented("{}: architectures names \"{}\" (model_type \"{}\"); LlamaForCausalLM and "
                    "MistralForCausalLM are supported",
                    reader.path(), architecture, type));
}

// What would change the answers if it were ignored.
void RefuseUnsupported(JsonReader& reader) {
  for (const std::string_view key : {"attention_bias", "mlp_bias"}) {
    if (reader.BooleanOr(key, false)) {
      reader.Fail(Unimplemented("{}: {}: biases are not supported", reader.path(), key));
    }
  }
  if (reader.NumberOr("partial_rotary_factor", 1) != 1) {
    reader.Fail(Unimplemented("{}: partial_rotary_factor is not supported", reader.path()));
  }
  if (reader.Has("quantization_config")) {
    reader.Fail(Unimplemented("{}: quantization_config: quantised checkpoints are not supported",
                              reader.path()));
  }
}

kernels::Activation ReadActivation(JsonReader& reader) {
  const std::string name = reader.TextOr("hidden_act", "silu");
  if (name == "silu" || name == "swish") return kernels::Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return kernels::Activation::kGeluTanh;
  reader.Fail(Unimplemented("{}: hidden_act \"{}\" is not supported", reader.path(), name));
  return kernels::Activation::kSilu;
}

void ReadYarn(JsonReader& scaling, RopeConfig& rope) {
  rope.beta_fast = scaling.NumberOr("beta_fast", 32);
  rope.beta_slow = scaling.NumberOr("beta_slow", 1);
  rope.attention_factor = scaling.NumberOr("attention_factor", 0);
  for (const std::string_view key : {"mscale", "mscale_all_dim"}) {
    if (scaling.Has(key)) {
      scaling.Fail(Unimplemented("{}: rope scaling with {} is not supported", scaling.path(), key));
    }
  }
  if (!scaling.BooleanOr("truncate", true)) {
    scaling.Fail(
        Unimplemented("{}: rope scaling with truncate false is not supported", scaling.path()));
  }
}

// `object` is rope_scaling or rope_parameters (its name since transformers 5).
absl::Status ReadRopeScaling(const std::string& path, std::string_view key, const json& object,
                             RopeConfig& rope) {
  if (!object.is_object()) return InvalidArgument("{}: {} must be an object", path, key);
  JsonReader scaling(path, object, fmt::format("{}.", key));
  rope.base = scaling.NumberOr("rope_theta", rope.base);
  // "type" is the key's older name.
  const std::string type = scaling.TextOr("rope_type", scaling.TextOr("type", "default"));
  const auto factor = scaling.OptionalNumber("factor");
  rope.factor = factor.value_or(1);
  rope.original_max_positions = scaling.IntegerOr("original_max_position_embeddings",
                                                  rope.original_max_positions, 1, 1 << 30);
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_frequency_factor = scaling.NumberOr("low_freq_factor", 1);
    rope.high_frequency_factor = scaling.NumberOr("high_freq_factor", 4);
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    ReadYarn(scaling, rope);
  } else if (type != "default") {
    return Unimplemented(
        "{}: {} of type \"{}\" is not supported (default, linear, llama3 and yarn are)", path, key,
        type);
  }
  if (rope.scaling != RopeScaling::kNone && !factor.has_value()) {
    scaling.Fail(InvalidArgument("{}: {}.factor is missing", path, key));
  }
  return scaling.status();
}

void ReadRope(JsonReader& reader, ModelConfig& config) {
  config.rope.style = kernels::RopeStyle::kHalves;
  config.rope.base = reader.NumberOr("rope_theta", 10000);
  config.rope.rotary_dim = config.head_dim;
  config.rope.original_max_positions = config.max_positions;
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const json* object = reader.Find(key);
    if (object == nullptr) continue;
    const absl::Status status = ReadRopeScaling(reader.path(), key, *object, config.rope);
    if (!status.ok()) reader.Fail(status);
  }
}

std::int32_t ReadHeadDim(JsonReader& reader, const ModelConfig& config) {
  if (reader.Has("head_dim")) return reader.Integer("head_dim", 1, 65536);
  if (config.hidden_size % config.num_heads != 0) {
    reader.Fail(InvalidArgument(
        "{}: hidden_size {} is not a multiple of num_attention_heads {} and head_dim is missing",
        reader.path(), config.hidden_size, config.num_heads));
  }
  return std::max(1, config.hidden_size / config.num_heads);
}

}  // namespace

absl::StatusOr<HfConfig> ReadHfConfig(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const json object, ReadJsonFile(path));
  JsonReader reader(path, object);
  CheckArchitecture(reader);
  RefuseUnsupported(reader);
  QUIRE_RETURN_IF_ERROR(reader.status());
  HfConfig result;
  ModelConfig& config = result.model;
  config.architecture = "llama";
  config.num_layers = reader.Integer("num_hidden_layers", 1, 10000);
  config.hidden_size = reader.Integer("hidden_size", 1, 1 << 20);
  config.intermediate_size = reader.Integer("intermediate_size", 1, 1 << 22);
  config.num_heads = reader.Integer("num_attention_heads", 1, 65536);
  config.num_kv_heads = reader.IntegerOr("num_key_value_heads", config.num_heads, 1, 65536);
  config.head_dim = ReadHeadDim(reader, config);
  config.vocab_size = reader.Integer("vocab_size", 1, 1 << 24);
  config.max_positions = reader.Integer("max_position_embeddings", 1, 1 << 28);
  config.sliding_window = reader.IntegerOr("sliding_window", 0, 0, 1 << 30);
  config.tie_embeddings = reader.BooleanOr("tie_word_embeddings", false);
  config.activation = ReadActivation(reader);
  const double epsilon = reader.NumberOr("rms_norm_eps", 1e-6);
  if (!(epsilon > 0 && epsilon < 1)) {
    reader.Fail(InvalidArgument("{}: rms_norm_eps must be in (0, 1), got {}", path, epsilon));
  }
  config.rms_norm_epsilon = static_cast<float>(epsilon);
  ReadRope(reader, config);
  result.eos_token_ids = ReadEosIds(reader);
  QUIRE_RETURN_IF_ERROR(reader.status());
  QUIRE_RETURN_IF_ERROR(CheckConfig(path, config));
  QUIRE_RETURN_IF_ERROR(CheckRope(path, config.rope));
  return result;
}

absl::StatusOr<HfGenerationConfig> ReadHfGenerationConfig(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const json object, ReadJsonFile(path));
  JsonReader reader(path, object);
  HfGenerationConfig result;
  result.eos_token_ids = ReadEosIds(reader);
  sampling::SamplingDefaults& defaults = result.sampling_defaults;
  defaults.temperature = reader.OptionalNumber("temperature");
  defaults.top_p = reader.OptionalNumber("top_p");
  defaults.min_p = reader.OptionalNumber("min_p");
  defaults.repetition_penalty = reader.OptionalNumber("repetition_penalty");
  const auto top_k = reader.OptionalInteger("top_k", -1, INT32_MAX);
  if (top_k.has_value()) defaults.top_k = static_cast<std::int32_t>(*top_k);
  QUIRE_RETURN_IF_ERROR(reader.status());
  return result;
}

absl::StatusOr<std::string> ReadHfChatTemplate(const std::string& folder) {
  constexpr std::uint64_t kMaxTemplateBytes = 4 << 20;
  const std::filesystem::path root(folder);
  auto source = ReadTextFile((root / "chat_template.jinja").string(), kMaxTemplateBytes);
  if (source.ok() || !absl::IsNotFound(source.status())) return source;
  const std::string path = (root / "tokenizer_config.json").string();
  const auto object = ReadJsonFile(path);
  if (absl::IsNotFound(object.status())) return std::string();
  QUIRE_RETURN_IF_ERROR(object.status());
  JsonReader reader(path, *object);
  const json* value = reader.Find("chat_template");
  if (value == nullptr) return std::string();
  if (value->is_string()) return value->get<std::string>();
  // Several named templates: [{"name": "default", "template": "…"}, …].
  if (value->is_array()) {
    for (const json& entry : *value) {
      if (entry.is_object() && entry.value("name", json()) == "default" &&
          entry.value("template", json()).is_string()) {
        return entry["template"].get<std::string>();
      }
    }
  }
  return InvalidArgument("{}: chat_template must be a string or a list with one called \"default\"",
                         path);
}

}  // namespace quire::engine::model
