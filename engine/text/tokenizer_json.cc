// Tokenizers out of a Hugging Face folder: tokenizer.json, and from tokenizer_config.json which
// tokens are BOS and EOS.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/text/byte_level_tokenizer.h"
#include "engine/text/json_components.h"
#include "engine/text/json_fields.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary_builder.h"
#include "nlohmann/json.hpp"

namespace quire::engine::text {
namespace {

using nlohmann::json;

// The largest known are near 40 MB.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

// Settings of the model that would change the ids and are not implemented.
absl::Status CheckModel(const json& model) {
  if (const json* type = FindField(model, "type"); type != nullptr && *type != "BPE") {
    return Unimplemented("model {} is not supported (supported: BPE)", Brief(*type));
  }
  if (const json* dropout = FindField(model, "dropout"); dropout != nullptr && *dropout != 0) {
    return Unimplemented("model.dropout {} is not supported", Brief(*dropout));
  }
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const json* value = FindField(model, affix); value != nullptr && *value != "") {
      return Unimplemented("model.{} {} is not supported", affix, Brief(*value));
    }
  }
  QUIRE_ASSIGN_OR_RETURN(const bool byte_fallback,
                         BoolField(model, "byte_fallback", false, "model"));
  if (byte_fallback) return Unimplemented("model.byte_fallback is not supported");
  return absl::OkStatus();
}

absl::Status AddVocabulary(const json& model, VocabularyBuilder& vocabulary) {
  const json* tokens = FindField(model, "vocab");
  if (tokens == nullptr || !tokens->is_object()) {
    return InvalidArgument("model.vocab must be an object");
  }
  for (const auto& [spelling, value] : tokens->items()) {
    const absl::StatusOr<TokenId> id = IdOf(value, "it");
    if (!id.ok()) {
      return InvalidArgument("model.vocab[\"{}\"]: {}", spelling, AsStd(id.status().message()));
    }
    QUIRE_RETURN_IF_ERROR(vocabulary.AddToken(*id, spelling));
  }
  return absl::OkStatus();
}

// Merges are "left right" in older files and ["left", "right"] in newer ones.
absl::Status AddMerges(const json& model, VocabularyBuilder& vocabulary) {
  QUIRE_ASSIGN_OR_RETURN(const json* merges, ArrayField(model, "merges", "model"));
  for (std::size_t i = 0; i < merges->size(); ++i) {
    const json& merge = (*merges)[i];
    if (merge.is_string()) {
      QUIRE_RETURN_IF_ERROR(vocabulary.AddMerge(merge.get_ref<const std::string&>()));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      QUIRE_RETURN_IF_ERROR(vocabulary.AddMerge(merge[0].get_ref<const std::string&>(),
                                                merge[1].get_ref<const std::string&>()));
    } else {
      return InvalidArgument("model.merges[{}] is not a pair of tokens", i);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<VocabularyBuilder::BpeOptions> ReadBpeOptions(const json& model,
                                                             const VocabularyBuilder& vocabulary) {
  VocabularyBuilder::BpeOptions options;
  QUIRE_ASSIGN_OR_RETURN(options.ignore_merges, BoolField(model, "ignore_merges", false, "model"));
  if (FindField(model, "unk_token") == nullptr) return options;
  QUIRE_ASSIGN_OR_RETURN(const std::string unknown, StringField(model, "unk_token", "model"));
  const std::optional<TokenId> id = vocabulary.Find(unknown);
  if (!id) return InvalidArgument("model.unk_token \"{}\" is not in the vocabulary", unknown);
  QUIRE_ASSIGN_OR_RETURN(const bool fuse, BoolField(model, "fuse_unk", false, "model"));
  options.unknown = Bpe::Unknown{.id = *id, .fuse = fuse};
  return options;
}

absl::StatusOr<AddedToken> ReadAddedToken(const json& entry, VocabularyBuilder& vocabulary) {
  constexpr std::string_view kWhere = "added_tokens";
  AddedToken token;
  const json* id = FindField(entry, "id");
  if (id == nullptr) return InvalidArgument("added_tokens.id is missing");
  QUIRE_ASSIGN_OR_RETURN(token.id, IdOf(*id, "added_tokens.id"));
  QUIRE_ASSIGN_OR_RETURN(token.content, StringField(entry, "content", kWhere));
  QUIRE_ASSIGN_OR_RETURN(token.is_special, BoolField(entry, "special", false, kWhere));
  QUIRE_ASSIGN_OR_RETURN(token.single_word, BoolField(entry, "single_word", false, kWhere));
  QUIRE_ASSIGN_OR_RETURN(token.lstrip, BoolField(entry, "lstrip", false, kWhere));
  QUIRE_ASSIGN_OR_RETURN(token.rstrip, BoolField(entry, "rstrip", false, kWhere));
  QUIRE_ASSIGN_OR_RETURN(token.normalized,
                         BoolField(entry, "normalized", !token.is_special, kWhere));
  QUIRE_ASSIGN_OR_RETURN(token.id,
                         vocabulary.AddAddedToken(token.id, token.content, token.is_special));
  return token;
}

struct AddedTokenSets {
  std::vector<AddedToken> as_written, normalized;
};

absl::StatusOr<AddedTokenSets> ReadAddedTokens(const json& root,
                                               const std::vector<NormalForm>& normal_forms,
                                               VocabularyBuilder& vocabulary) {
  AddedTokenSets sets;
  if (FindField(root, "added_tokens") == nullptr) return sets;
  QUIRE_ASSIGN_OR_RETURN(const json* list, ArrayField(root, "added_tokens", "tokenizer"));
  for (const json& entry : *list) {
    QUIRE_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(entry, vocabulary));
    if (!token.normalized) {
      sets.as_written.push_back(std::move(token));
      continue;
    }
    for (const NormalForm form : normal_forms) token.content = Normalize(token.content, form);
    sets.normalized.push_back(std::move(token));
  }
  return sets;
}

absl::StatusOr<ByteLevelParts> ReadTokenizer(const json& root, VocabularyBuilder& vocabulary) {
  const json* model = FindField(root, "model");
  if (model == nullptr || !model->is_object()) return InvalidArgument("model must be an object");
  QUIRE_RETURN_IF_ERROR(CheckModel(*model));
  QUIRE_RETURN_IF_ERROR(CheckDecoder(FindField(root, "decoder")));
  QUIRE_ASSIGN_OR_RETURN(std::vector<NormalForm> normal_forms,
                         ReadNormalizer(FindField(root, "normalizer")));
  QUIRE_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer,
                         ReadPreTokenizer(FindField(root, "pre_tokenizer")));

  QUIRE_RETURN_IF_ERROR(AddVocabulary(*model, vocabulary));
  QUIRE_RETURN_IF_ERROR(AddMerges(*model, vocabulary));
  QUIRE_ASSIGN_OR_RETURN(const VocabularyBuilder::BpeOptions bpe_options,
                         ReadBpeOptions(*model, vocabulary));
  const Bpe bpe = vocabulary.MakeBpe(bpe_options);
  QUIRE_ASSIGN_OR_RETURN(AddedTokenSets added, ReadAddedTokens(root, normal_forms, vocabulary));
  QUIRE_ASSIGN_OR_RETURN(AddedTokens as_written, AddedTokens::Create(std::move(added.as_written)));
  QUIRE_ASSIGN_OR_RETURN(AddedTokens normalized, AddedTokens::Create(std::move(added.normalized)));
  QUIRE_ASSIGN_OR_RETURN(SpecialFrame frame,
                         ReadPostProcessor(FindField(root, "post_processor"), vocabulary));
  return ByteLevelParts{
      .vocabulary = vocabulary.MakeVocabulary(),
      .added_as_written = std::move(as_written),
      .added_normalized = std::move(normalized),
      .normal_forms = std::move(normal_forms),
      .pre_tokenizer = std::move(pre_tokenizer),
      .bpe = bpe,
      .prefix = std::move(frame.prefix),
      .suffix = std::move(frame.suffix),
      .bos = std::nullopt,
      .eos = std::nullopt,
  };
}

// The token that `key` of tokenizer_config.json names: a string, or an object with its content.
absl::StatusOr<std::optional<TokenId>> NamedToken(const json& config, std::string_view key,
                                                  const VocabularyBuilder& vocabulary) {
  const json* value = FindField(config, key);
  if (value != nullptr && value->is_object()) value = FindField(*value, "content");
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return InvalidArgument("{} must be a token", key);
  const std::string& content = value->get_ref<const std::string&>();
  const std::optional<TokenId> id = vocabulary.Find(content);
  if (!id) return InvalidArgument("{} \"{}\" is not in the vocabulary", key, content);
  return id;
}

// Of the tokenizer classes of transformers only Llama's obeys add_bos_token and add_eos_token; for
// the others tokenizer.json alone says what is added.
absl::Status ApplyLlamaRules(const json& config, ByteLevelParts& parts) {
  const json* name = FindField(config, "tokenizer_class");
  if (name == nullptr || (*name != "LlamaTokenizer" && *name != "LlamaTokenizerFast")) {
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const bool add_bos, BoolField(config, "add_bos_token", false, "config"));
  QUIRE_ASSIGN_OR_RETURN(const bool add_eos, BoolField(config, "add_eos_token", false, "config"));
  if (add_bos && parts.bos) parts.prefix = {*parts.bos};
  if (add_eos && parts.eos) parts.suffix = {*parts.eos};
  return absl::OkStatus();
}

absl::Status ReadConfig(const json& config, const VocabularyBuilder& vocabulary,
                        ByteLevelParts& parts) {
  QUIRE_ASSIGN_OR_RETURN(parts.bos, NamedToken(config, "bos_token", vocabulary));
  QUIRE_ASSIGN_OR_RETURN(parts.eos, NamedToken(config, "eos_token", vocabulary));
  return ApplyLlamaRules(config, parts);
}

absl::Status Located(const absl::Status& status, std::string_view path) {
  return {status.code(), AsAbsl(fmt::format("{}: {}", path, AsStd(status.message())))};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerFromFolder(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "tokenizer.json").string();
  QUIRE_ASSIGN_OR_RETURN(const json root, ReadJsonFile(path, kMaxFileBytes));
  VocabularyBuilder vocabulary;
  absl::StatusOr<ByteLevelParts> parts = ReadTokenizer(root, vocabulary);
  if (!parts.ok()) return Located(parts.status(), path);

  const std::string config_path =
      (std::filesystem::path(folder) / "tokenizer_config.json").string();
  if (std::error_code error; std::filesystem::exists(config_path, error)) {
    QUIRE_ASSIGN_OR_RETURN(const json config, ReadJsonFile(config_path, kMaxFileBytes));
    if (absl::Status status = ReadConfig(config, vocabulary, *parts); !status.ok()) {
      return Located(status, config_path);
    }
  }
  // Without a name for it, what is put first is the BOS.
  if (!parts->bos && !parts->prefix.empty()) parts->bos = parts->prefix.front();
  return MakeByteLevelTokenizer(*std::move(parts));
}

}  // namespace quire::engine::text
