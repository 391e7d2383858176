#include "tests/fakes/toy_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "engine/model/llama_files.h"
#include "engine/model/weight_names.h"
#include "nlohmann/json.hpp"
#include "tests/fakes/file_writers.h"

namespace quire::fakes {
namespace {

namespace names = engine::model;
using nlohmann::json;

constexpr std::array<std::string_view, 3> kControlTokens = {"<|endoftext|>", "<|im_start|>",
                                                            "<|im_end|>"};

// What each merge joins, in order of rank.
constexpr std::array<std::pair<std::string_view, std::string_view>, 41> kMerges = {{
    {" ", "t"},   {" ", "a"},  {"i", "n"},  {"h", "e"},  {" ", " "},  {"r", "e"},  {"o", "n"},
    {" t", "he"}, {"e", "r"},  {" ", "s"},  {"a", "t"},  {" ", "w"},  {" ", "o"},  {"e", "n"},
    {" ", "c"},   {"i", "t"},  {"i", "s"},  {"a", "n"},  {"o", "r"},  {"e", "s"},  {" ", "b"},
    {"e", "d"},   {" ", "f"},  {"in", "g"}, {" ", "p"},  {"o", "u"},  {" a", "n"}, {"a", "l"},
    {"a", "r"},   {" t", "o"}, {" ", "m"},  {" o", "f"}, {" ", "in"}, {" ", "d"},  {" ", "h"},
    {" an", "d"}, {"i", "c"},  {"a", "s"},  {"l", "e"},  {" t", "h"}, {"i", "on"},
}};

// The template of SmolLM2-Instruct.
constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\n' }}{% endif %}";

// GPT-2's printable stand-in for a byte, as UTF-8.
std::string StandIn(unsigned char byte) {
  const auto is_printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  unsigned code_point = byte;
  if (!is_printable(byte)) {
    code_point = 256;
    for (int b = 0; b < byte; ++b) code_point += is_printable(b) ? 0 : 1;
  }
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0U | code_point >> 6U),
          static_cast<char>(0x80U | (code_point & 63U))};
}

std::string StandIns(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += StandIn(static_cast<unsigned char>(c));
  return text;
}

bool IsControl(std::size_t id) { return id < kControlTokens.size(); }

// As llama.cpp's converter: rotary pairs (i, i + half) become neighbours (2i, 2i + 1).
std::vector<float> InterleavePairs(const ToyTensor& tensor, int head_dim) {
  const std::int64_t cols = tensor.shape[1], half = head_dim / 2;
  std::vector<float> result(tensor.values.size());
  for (std::int64_t row = 0; row < tensor.shape[0]; ++row) {
    const std::int64_t in_head = row % head_dim;
    const std::int64_t target =
        row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    std::copy_n(tensor.values.begin() + row * cols, cols, result.begin() + target * cols);
  }
  return result;
}

std::string MergeText(std::size_t i) {
  return StandIns(kMerges[i].first) + " " + StandIns(kMerges[i].second);
}

}  // namespace

ToyModel::ToyModel(ToyOptions options) : options_(std::move(options)) {
  for (const std::string_view name : kControlTokens) tokens_.emplace_back(name);
  for (int byte = 0; byte < 256; ++byte) tokens_.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : kMerges) {
    tokens_.push_back(std::string(left) + std::string(right));
  }
  for (const std::string& extra : options_.extra_tokens) tokens_.push_back(extra);

  names::ModelConfig config;
  config.num_layers = options_.num_layers;
  config.hidden_size = options_.hidden_size;
  config.intermediate_size = options_.intermediate_size;
  config.num_heads = options_.num_heads;
  config.num_kv_heads = options_.num_kv_heads;
  config.head_dim = options_.head_dim;
  config.vocab_size = vocab_size();
  config.tie_embeddings = options_.tie_embeddings;
  for (auto& [name, shape] : names::ExpectedTensors(config)) {
    // Unit variance for embeddings, outputs of unit variance for matrices, sharper for the head.
    const double unit = std::sqrt(3.0 / static_cast<double>(shape.back()));
    const bool is_norm = shape.size() == 1;
    const double scale = is_norm                 ? 0.1
                         : name == names::kEmbed ? std::sqrt(3.0)
                         : name == names::kHead  ? 3 * unit
                                                 : unit;
    AddTensor(name, shape, scale, is_norm ? 1 : 0);
  }
}

void ToyModel::AddTensor(std::string name, std::vector<std::int64_t> shape, double scale,
                         double offset) {
  std::int64_t elements = 1;
  for (const std::int64_t dimension : shape) elements *= dimension;
  ToyTensor tensor{std::move(name), std::move(shape), {}};
  const auto index = static_cast<std::uint32_t>(tensors_.size());
  for (std::int64_t i = 0; i < elements; ++i) {
    const double uniform = PhiloxUniform(options_.seed, index, static_cast<std::uint64_t>(i));
    tensor.values.push_back(static_cast<float>(offset + scale * (2 * uniform - 1)));
  }
  tensors_.push_back(std::move(tensor));
}

TokenId ToyModel::Extra(int index) const {
  return kToyFirstMerge + static_cast<TokenId>(kMerges.size()) + index;
}

ToyTensor& ToyModel::tensor(std::string_view name) {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const ToyTensor& t) { return t.name == name; });
  QUIRE_CHECK(found != tensors_.end()) << name;
  return *found;
}

void ToyModel::PoisonEmbedding(TokenId token) {
  tensor(names::kEmbed).values[static_cast<std::size_t>(token * options_.hidden_size)] =
      std::numeric_limits<float>::quiet_NaN();
}

void ToyModel::MakeChain(const std::vector<TokenId>& sequence) {
  QUIRE_CHECK(!options_.tie_embeddings);
  std::set<TokenId> seen;
  for (std::size_t i = 0; i + 1 < sequence.size(); ++i) {
    QUIRE_CHECK(seen.insert(sequence[i]).second) << "token " << sequence[i] << " appears twice";
  }
  for (ToyTensor& tensor : tensors_) {
    if (tensor.name.ends_with(names::kOProj) || tensor.name.ends_with(names::kDownProj)) {
      std::fill(tensor.values.begin(), tensor.values.end(), 0.0F);
    }
  }
  auto& gain = tensor(names::kFinalNorm).values;
  std::fill(gain.begin(), gain.end(), 1.0F);
  // All embeddings get the same length, so that each is closest to itself.
  auto& embed = tensor(names::kEmbed).values;
  for (float& value : embed) value = value < 0 ? -1.0F : 1.0F;
  auto& head = tensor(names::kHead).values;
  std::fill(head.begin(), head.end(), 0.0F);
  const auto hidden = static_cast<std::size_t>(options_.hidden_size);
  for (std::size_t i = 0; i + 1 < sequence.size(); ++i) {
    const float* from = embed.data() + static_cast<std::size_t>(sequence[i]) * hidden;
    float* to = head.data() + static_cast<std::size_t>(sequence[i + 1]) * hidden;
    // A last token that closes a loop has two predecessors.
    for (std::size_t k = 0; k < hidden; ++k) to[k] += from[k];
  }
}

std::string ToyModel::WriteGguf(const std::string& folder) const {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    tokens.push_back(IsControl(id) ? tokens_[id] : StandIns(tokens_[id]));
    types.push_back(IsControl(id) ? 3 : 1);
  }
  std::vector<std::string> merges;
  for (std::size_t i = 0; i < kMerges.size(); ++i) merges.push_back(MergeText(i));
  const auto u32 = [](int value) { return static_cast<std::uint32_t>(value); };
  QUIRE_CHECK(options_.sliding_window == 0);
  GgufWriter writer;
  writer.Text("general.architecture", "llama")
      .Text("general.name", "Toy")
      .U32("llama.block_count", u32(options_.num_layers))
      .U32("llama.context_length", u32(options_.max_positions))
      .U32("llama.embedding_length", u32(options_.hidden_size))
      .U32("llama.feed_forward_length", u32(options_.intermediate_size))
      .U32("llama.attention.head_count", u32(options_.num_heads))
      .U32("llama.attention.head_count_kv", u32(options_.num_kv_heads))
      .U32("llama.attention.key_length", u32(options_.head_dim))
      .U32("llama.attention.value_length", u32(options_.head_dim))
      .U32("llama.rope.dimension_count", u32(options_.head_dim))
      .F32("llama.rope.freq_base", static_cast<float>(options_.rope_base))
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .U32("llama.vocab_size", u32(vocab_size()))
      .Text("tokenizer.ggml.model", "gpt2")
      .Text("tokenizer.ggml.pre", "smollm")
      .Texts("tokenizer.ggml.tokens", tokens)
      .I32s("tokenizer.ggml.token_type", types)
      .Texts("tokenizer.ggml.merges", merges)
      .U32("tokenizer.ggml.bos_token_id", u32(kToyImStart))
      .Bool("tokenizer.ggml.add_bos_token", options_.add_bos)
      .Text("tokenizer.chat_template", kChatTemplate);
  constexpr std::array<std::string_view, 3> kEosKeys = {
      "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  QUIRE_CHECK(options_.eos_token_ids.size() <= kEosKeys.size());
  for (std::size_t i = 0; i < options_.eos_token_ids.size(); ++i) {
    writer.U32(kEosKeys[i], u32(options_.eos_token_ids[i]));
  }
  for (const ToyTensor& tensor : tensors_) {
    const bool rotated =
        tensor.name.ends_with(names::kQProj) || tensor.name.ends_with(names::kKProj);
    const std::string type = tensor.shape.size() == 1 ? "F32" : options_.matrix_type;
    writer.Tensor(
        names::GgufTensorName(tensor.name), {tensor.shape.begin(), tensor.shape.end()}, type,
        EncodeTensor(type, rotated ? InterleavePairs(tensor, options_.head_dim) : tensor.values));
  }
  const std::string path = folder + "/toy.gguf";
  WriteFile(path, writer.Build());
  return path;
}

std::string ToyModel::ConfigJson() const {
  json config({{"architectures", {"LlamaForCausalLM"}},
               {"model_type", "llama"},
               {"num_hidden_layers", options_.num_layers},
               {"hidden_size", options_.hidden_size},
               {"intermediate_size", options_.intermediate_size},
               {"num_attention_heads", options_.num_heads},
               {"num_key_value_heads", options_.num_kv_heads},
               {"head_dim", options_.head_dim},
               {"vocab_size", vocab_size()},
               {"max_position_embeddings", options_.max_positions},
               {"rms_norm_eps", 1e-5},
               {"rope_theta", options_.rope_base},
               {"hidden_act", "silu"},
               {"tie_word_embeddings", options_.tie_embeddings},
               {"eos_token_id", options_.eos_token_ids}});
  if (options_.sliding_window > 0) {
    config["architectures"] = {"MistralForCausalLM"};
    config["model_type"] = "mistral";
    config["sliding_window"] = options_.sliding_window;
  }
  return config.dump(2);
}

std::string ToyModel::TokenizerJson() const {
  json added = json::array();
  json vocab = json::object();
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    vocab[IsControl(id) ? tokens_[id] : StandIns(tokens_[id])] = id;
    if (!IsControl(id)) continue;
    added.push_back({{"id", id},
                     {"content", tokens_[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  json merges = json::array();
  for (std::size_t i = 0; i < kMerges.size(); ++i) merges.push_back(MergeText(i));
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  return json({{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", added},
               {"normalizer", nullptr},
               {"pre_tokenizer",
                {{"type", "Sequence"}, {"pretokenizers", json::array({digits, byte_level})}}},
               {"post_processor", nullptr},
               {"decoder", byte_level},
               {"model",
                {{"type", "BPE"},
                 {"dropout", nullptr},
                 {"unk_token", nullptr},
                 {"continuing_subword_prefix", nullptr},
                 {"end_of_word_suffix", nullptr},
                 {"fuse_unk", false},
                 {"byte_fallback", false},
                 {"vocab", vocab},
                 {"merges", merges}}}})
      .dump(1);
}

std::string ToyModel::TokenizerConfigJson() const {
  json config = {{"add_prefix_space", false},         {"bos_token", kControlTokens[kToyImStart]},
                 {"add_bos_token", options_.add_bos}, {"clean_up_tokenization_spaces", false},
                 {"chat_template", kChatTemplate},    {"tokenizer_class", "GPT2Tokenizer"}};
  if (!options_.eos_token_ids.empty() &&
      IsControl(static_cast<std::size_t>(options_.eos_token_ids[0]))) {
    config["eos_token"] = kControlTokens[static_cast<std::size_t>(options_.eos_token_ids[0])];
  }
  return config.dump(2);
}

std::string ToyModel::WriteHuggingFace(const std::string& folder) const {
  std::vector<SafetensorsTensor> stored;
  for (const ToyTensor& tensor : tensors_) {
    const std::string type = tensor.shape.size() == 1 ? "F32" : options_.matrix_type;
    stored.push_back({names::HuggingFaceTensorName(tensor.name), type, tensor.shape,
                      EncodeTensor(type, tensor.values)});
  }
  WriteFile(folder + "/model.safetensors", BuildSafetensors(stored));
  WriteFile(folder + "/config.json", ConfigJson());
  WriteFile(folder + "/tokenizer.json", TokenizerJson());
  WriteFile(folder + "/tokenizer_config.json", TokenizerConfigJson());
  return folder;
}

}  // namespace quire::fakes
