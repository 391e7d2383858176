#include "engine/model/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/model/gguf_file.h"
#include "engine/model/llama_files.h"
#include "engine/model/rope.h"
#include "engine/model/weight_names.h"

namespace quire::engine::model {
namespace {

// Reads metadata with ranges; the first problem is kept and reported by status().
class KeyReader {
 public:
  explicit KeyReader(const GgufFile& file) : file_(file) {}

  const absl::Status& status() const { return status_; }

  std::optional<std::int64_t> OptionalInteger(std::string_view key, std::int64_t min,
                                              std::int64_t max) {
    const auto value = Take(file_.Integer(key));
    if (value.has_value() && (*value < min || *value > max)) {
      Fail(InvalidArgument("{}: {} must be in [{}, {}], got {}", file_.path(), key, min, max,
                           *value));
      return std::nullopt;
    }
    return value;
  }
  // A failure gives `min`, so that what follows can go on.
  std::int32_t Integer(std::string_view key, std::int32_t min, std::int32_t max) {
    if (!file_.Has(key)) Fail(InvalidArgument("{}: {} is missing", file_.path(), key));
    return static_cast<std::int32_t>(OptionalInteger(key, min, max).value_or(min));
  }
  std::int32_t IntegerOr(std::string_view key, std::int32_t fallback, std::int32_t min,
                         std::int32_t max) {
    return static_cast<std::int32_t>(OptionalInteger(key, min, max).value_or(fallback));
  }
  std::optional<double> OptionalNumber(std::string_view key) {
    const auto value = Take(file_.Number(key));
    if (value.has_value() && !std::isfinite(*value)) {
      Fail(InvalidArgument("{}: {} is not finite", file_.path(), key));
      return std::nullopt;
    }
    return value;
  }
  double NumberOr(std::string_view key, double fallback) {
    return OptionalNumber(key).value_or(fallback);
  }
  std::string TextOr(std::string_view key, std::string_view fallback) {
    return Take(file_.Text(key)).value_or(std::string(fallback));
  }
  bool BooleanOr(std::string_view key, bool fallback) {
    return Take(file_.Boolean(key)).value_or(fallback);
  }
  template <class T>
  std::optional<T> Take(absl::StatusOr<std::optional<T>> value) {
    if (value.ok()) return *std::move(value);
    Fail(std::move(value).status());
    return std::nullopt;
  }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

 private:
  const GgufFile& file_;
  absl::Status status_;
};

// One number, or one per layer if all are equal.
std::int32_t HeadCount(const GgufFile& file, KeyReader& keys, std::string_view key,
                       std::int32_t fallback) {
  constexpr std::int32_t kMaxHeads = 65536;
  const auto per_layer = file.Integers(key);
  if (!per_layer.ok()) return keys.IntegerOr(key, fallback, 1, kMaxHeads);
  if (!per_layer->has_value() || (*per_layer)->empty()) return fallback;
  const std::vector<std::int64_t>& counts = **per_layer;
  if (std::any_of(counts.begin(), counts.end(), [&](auto n) { return n != counts[0]; })) {
    keys.Fail(
        Unimplemented("{}: {} differs between layers, which is not supported", file.path(), key));
  } else if (counts[0] < 1 || counts[0] > kMaxHeads) {
    keys.Fail(InvalidArgument("{}: {} must be in [1, {}], got {}", file.path(), key, kMaxHeads,
                              counts[0]));
  } else {
    return static_cast<std::int32_t>(counts[0]);
  }
  return fallback;
}

RopeConfig ReadRope(const GgufFile& file, KeyReader& keys, std::int32_t head_dim,
                    std::int32_t max_positions) {
  RopeConfig rope;
  rope.style = kernels::RopeStyle::kInterleaved;
  rope.base = keys.NumberOr("llama.rope.freq_base", 10000);
  rope.rotary_dim = keys.IntegerOr("llama.rope.dimension_count", head_dim, 1, 65536);
  const double linear = keys.NumberOr("llama.rope.scale_linear", 1);  // The key's older name.
  const std::string type = keys.TextOr("llama.rope.scaling.type", linear == 1 ? "none" : "linear");
  rope.factor = keys.NumberOr("llama.rope.scaling.factor", linear);
  rope.original_max_positions =
      keys.IntegerOr("llama.rope.scaling.original_context_length", max_positions, 1, 1 << 30);
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = keys.NumberOr("llama.rope.scaling.yarn_beta_fast", 32);
    rope.beta_slow = keys.NumberOr("llama.rope.scaling.yarn_beta_slow", 1);
    // The file's factor multiplies the derived one.
    rope.attention_factor =
        YarnAttentionFactor(rope.factor) * keys.NumberOr("llama.rope.scaling.attn_factor", 1);
  } else if (type != "none") {
    keys.Fail(
        Unimplemented("{}: llama.rope.scaling.type \"{}\" is not supported (none, linear and "
                      "yarn are)",
                      file.path(), type));
  }
  return rope;
}

std::int32_t ReadVocabSize(const GgufFile& file, KeyReader& keys) {
  constexpr std::int64_t kMaxVocab = 1 << 24;
  const auto stated = keys.OptionalInteger("llama.vocab_size", 1, kMaxVocab);
  if (stated.has_value()) return static_cast<std::int32_t>(*stated);
  const auto tokens = keys.Take(file.Texts("tokenizer.ggml.tokens"));
  if (tokens.has_value() && !tokens->empty()) return static_cast<std::int32_t>(tokens->size());
  const std::string embedding = GgufTensorName(kEmbed);
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name == embedding && tensor.shape.size() == 2 && tensor.shape[0] <= kMaxVocab) {
      return static_cast<std::int32_t>(tensor.shape[0]);
    }
  }
  keys.Fail(InvalidArgument("{}: nothing tells the size of the vocabulary", file.path()));
  return 1;
}

absl::StatusOr<ModelConfig> ReadConfig(const GgufFile& file) {
  KeyReader keys(file);
  const std::string architecture = keys.TextOr("general.architecture", "");
  QUIRE_RETURN_IF_ERROR(keys.status());
  if (architecture != "llama") {
    return Unimplemented("{}: general.architecture is \"{}\"; only \"llama\" is supported",
                         file.path(), architecture);
  }
  ModelConfig config;
  config.architecture = architecture;
  config.num_layers = keys.Integer("llama.block_count", 1, 10000);
  config.hidden_size = keys.Integer("llama.embedding_length", 1, 1 << 20);
  config.intermediate_size = keys.Integer("llama.feed_forward_length", 1, 1 << 22);
  config.max_positions = keys.Integer("llama.context_length", 1, 1 << 28);
  keys.Integer("llama.attention.head_count", 1, 65536);
  config.num_heads = HeadCount(file, keys, "llama.attention.head_count", 1);
  config.num_kv_heads = HeadCount(file, keys, "llama.attention.head_count_kv", config.num_heads);
  const std::int32_t derived = std::max(1, config.hidden_size / config.num_heads);
  config.head_dim = keys.IntegerOr("llama.attention.key_length", derived, 1, 65536);
  if (!file.Has("llama.attention.key_length") && config.hidden_size % config.num_heads != 0) {
    keys.Fail(InvalidArgument(
        "{}: llama.embedding_length {} is not a multiple of llama.attention.head_count {} and "
        "llama.attention.key_length is missing",
        file.path(), config.hidden_size, config.num_heads));
  }
  if (keys.IntegerOr("llama.attention.value_length", config.head_dim, 1, 65536) !=
      config.head_dim) {
    keys.Fail(Unimplemented(
        "{}: llama.attention.value_length differs from the key length {}, which is not supported",
        file.path(), config.head_dim));
  }
  if (keys.IntegerOr("llama.expert_count", 0, 0, 1 << 20) > 0) {
    keys.Fail(Unimplemented("{}: llama.expert_count: mixtures of experts are not supported",
                            file.path()));
  }
  config.sliding_window = keys.IntegerOr("llama.attention.sliding_window", 0, 0, 1 << 30);
  const double epsilon = keys.OptionalNumber("llama.attention.layer_norm_rms_epsilon").value_or(0);
  if (!(epsilon > 0 && epsilon < 1)) {
    keys.Fail(InvalidArgument("{}: llama.attention.layer_norm_rms_epsilon must be in (0, 1)",
                              file.path()));
  }
  config.rms_norm_epsilon = static_cast<float>(epsilon);
  config.vocab_size = ReadVocabSize(file, keys);
  config.rope = ReadRope(file, keys, config.head_dim, config.max_positions);
  const std::string head = GgufTensorName(kHead);
  config.tie_embeddings = std::none_of(file.tensors().begin(), file.tensors().end(),
                                       [&](const StoredTensor& t) { return t.name == head; });
  QUIRE_RETURN_IF_ERROR(keys.status());
  QUIRE_RETURN_IF_ERROR(CheckConfig(file.path(), config));
  return config;
}

// Takes "rope_freqs.weight" out of `tensors`: it belongs to the configuration, not to the weights.
absl::Status TakeFrequencyFactors(const GgufFile& file, std::vector<StoredTensor>& tensors,
                                  RopeConfig& rope) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [](const StoredTensor& t) {
    return t.name == "rope_freqs.weight";
  });
  if (found == tensors.end()) return absl::OkStatus();
  if (found->shape != std::vector<std::int64_t>{rope.rotary_dim / 2} ||
      TensorBlockElements(found->type) != 1) {
    return InvalidArgument("{}: tensor rope_freqs.weight must hold {} floats, it is {} {}",
                           file.path(), rope.rotary_dim / 2, TensorTypeName(found->type),
                           ShapeString(found->shape));
  }
  QUIRE_ASSIGN_OR_RETURN(rope.frequency_factors, ReadVector(*found));
  tensors.erase(found);
  return absl::OkStatus();
}

std::vector<TokenId> ReadEosIds(KeyReader& keys) {
  std::vector<TokenId> ids;
  for (const std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"}) {
    const auto id = keys.OptionalInteger(key, 0, (1LL << 32) - 1);
    if (!id.has_value() || *id > INT32_MAX) continue;  // 2^32 - 1 stands for "none".
    const auto token = static_cast<TokenId>(*id);
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  }
  return ids;
}

sampling::SamplingDefaults ReadSamplingDefaults(KeyReader& keys) {
  sampling::SamplingDefaults defaults;
  defaults.temperature = keys.OptionalNumber("general.sampling.temp");
  defaults.top_p = keys.OptionalNumber("general.sampling.top_p");
  defaults.min_p = keys.OptionalNumber("general.sampling.min_p");
  defaults.repetition_penalty = keys.OptionalNumber("general.sampling.penalty_repeat");
  const auto top_k = keys.OptionalInteger("general.sampling.top_k", -1, INT32_MAX);
  if (top_k.has_value()) defaults.top_k = static_cast<std::int32_t>(*top_k);
  return defaults;
}

absl::StatusOr<text::TokenizerTables> ReadTokenizerTables(const GgufFile& file) {
  KeyReader keys(file);
  text::TokenizerTables tables;
  tables.model = keys.TextOr("tokenizer.ggml.model", "");
  tables.pre = keys.TextOr("tokenizer.ggml.pre", "");
  tables.tokens =
      keys.Take(file.Texts("tokenizer.ggml.tokens")).value_or(std::vector<std::string>());
  if (tables.model == "gpt2" && !file.Has("tokenizer.ggml.merges")) {
    return InvalidArgument("{}: tokenizer.ggml.merges is missing", file.path());
  }
  tables.merges =
      keys.Take(file.Texts("tokenizer.ggml.merges")).value_or(std::vector<std::string>());
  const auto types = keys.Take(file.Integers("tokenizer.ggml.token_type"));
  for (const std::int64_t type : types.value_or(std::vector<std::int64_t>())) {
    tables.token_types.push_back(static_cast<std::int32_t>(type));
  }
  const auto id = [&](std::string_view key) -> std::optional<TokenId> {
    const auto value = keys.OptionalInteger(key, 0, (1LL << 32) - 1);
    if (!value.has_value() || *value > INT32_MAX) return std::nullopt;
    return static_cast<TokenId>(*value);
  };
  tables.bos = id("tokenizer.ggml.bos_token_id");
  tables.eos = id("tokenizer.ggml.eos_token_id");
  tables.unk = id("tokenizer.ggml.unknown_token_id");
  tables.pad = id("tokenizer.ggml.padding_token_id");
  // Llama 3 files need not say that they want BOS (llama.cpp, llama-vocab.cpp).
  const bool llama3 =
      tables.pre == "llama3" || tables.pre == "llama-v3" || tables.pre == "llama-bpe";
  tables.add_bos = keys.BooleanOr("tokenizer.ggml.add_bos_token", llama3);
  tables.add_eos = keys.BooleanOr("tokenizer.ggml.add_eos_token", false);
  QUIRE_RETURN_IF_ERROR(keys.status());
  if (tables.tokens.empty()) {
    return InvalidArgument("{}: tokenizer.ggml.tokens is missing or empty", file.path());
  }
  if (!tables.token_types.empty() && tables.token_types.size() != tables.tokens.size()) {
    return InvalidArgument("{}: tokenizer.ggml.token_type has {} entries for {} tokens",
                           file.path(), tables.token_types.size(), tables.tokens.size());
  }
  return tables;
}

class GgufModel final : public LlamaFiles {
 public:
  GgufModel(GgufFile file, LlamaModel model)
      : LlamaFiles(std::move(model)), file_(std::move(file)) {}

  absl::Status Match() { return MatchTensors(GgufTensorName); }
  std::string_view format() const override { return "gguf"; }
  absl::StatusOr<std::unique_ptr<text::Tokenizer>> LoadTokenizer() const override {
    if (!file_.Has("tokenizer.ggml.model")) return std::unique_ptr<text::Tokenizer>();
    QUIRE_ASSIGN_OR_RETURN(auto tables, ReadTokenizerTables(file_));
    auto tokenizer = text::TokenizerFromTables(tables);
    if (tokenizer.ok()) return tokenizer;
    return absl::Status(tokenizer.status().code(),
                        fmt::format("{}: {}", file_.path(), AsStd(tokenizer.status().message())));
  }

 private:
  const GgufFile file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFiles>> OpenGgufModel(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(auto file, File::Open(path));
  QUIRE_ASSIGN_OR_RETURN(GgufFile gguf, GgufFile::Parse(std::move(file)));
  LlamaModel model;
  model.source = path;
  QUIRE_ASSIGN_OR_RETURN(model.config, ReadConfig(gguf));
  model.tensors = gguf.tensors();
  QUIRE_RETURN_IF_ERROR(TakeFrequencyFactors(gguf, model.tensors, model.config.rope));
  QUIRE_RETURN_IF_ERROR(CheckRope(path, model.config.rope));
  KeyReader keys(gguf);
  model.name = keys.TextOr("general.name", std::filesystem::path(path).stem().string());
  model.chat_template = keys.TextOr("tokenizer.chat_template", "");
  model.eos_token_ids = ReadEosIds(keys);
  model.sampling_defaults = ReadSamplingDefaults(keys);
  QUIRE_RETURN_IF_ERROR(keys.status());
  auto result = std::make_unique<GgufModel>(std::move(gguf), std::move(model));
  QUIRE_RETURN_IF_ERROR(result->Match());
  return std::unique_ptr<ModelFiles>(std::move(result));
}

}  // namespace quire::engine::model
