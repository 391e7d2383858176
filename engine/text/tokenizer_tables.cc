// Tokenizers out of the tables of a GGUF file.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/text/byte_level_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary_builder.h"

namespace quire::engine::text {
namespace {

// Token types of GGUF (llama.cpp's llama_token_type).
constexpr std::int32_t kUnknown = 2, kControl = 3, kUserDefined = 4;

// What the value of tokenizer.ggml.pre stands for: the splits of the tokenizer.json that the file
// was converted from. Each expression isolates its matches.
struct PreTokenizerRecipe {
  std::string_view name;
  std::vector<std::string_view> patterns;
  std::optional<NormalForm> normal_form = std::nullopt;
  bool ignore_merges = false;
  bool add_bos = false;  // When the file does not say.
};

const std::vector<PreTokenizerRecipe>& Recipes() {
  static const auto* const recipes = new std::vector<PreTokenizerRecipe>{
      {.name = "gpt-2", .patterns = {kGpt2Pattern}},
      {.name = "smollm", .patterns = {R"(\p{N})", kGpt2Pattern}},
      {.name = "qwen2",
       .patterns =
           {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       .normal_form = NormalForm::kNfc},
      {.name = "llama-bpe",
       .patterns =
           {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       .ignore_merges = true,
       .add_bos = true},
      // llama.cpp's choice for files that name none.
      {.name = "default",
       .patterns = {R"([\p{P}\$\+<=>\^~\|]+)",
                    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
                    R"(\p{N}+)", R"([0-9][0-9][0-9])"}},
  };
  return *recipes;
}

absl::StatusOr<const PreTokenizerRecipe*> FindRecipe(std::string_view name) {
  std::string names;
  for (const PreTokenizerRecipe& recipe : Recipes()) {
    if (recipe.name == name) return &recipe;
    names += names.empty() ? "" : ", ";
    names += recipe.name;
  }
  return Unimplemented("tokenizer.ggml.pre \"{}\" is not supported (supported: {})", name, names);
}

absl::Status CheckTables(const TokenizerTables& tables) {
  if (tables.model != "gpt2") {
    return Unimplemented("tokenizer.ggml.model \"{}\" is not supported (supported: gpt2)",
                         tables.model);
  }
  if (tables.tokens.empty()) return InvalidArgument("tokenizer.ggml.tokens is empty");
  if (tables.tokens.size() > static_cast<std::size_t>(kMaxTokenId) + 1) {
    return InvalidArgument("tokenizer.ggml.tokens has {} entries, more than {}",
                           tables.tokens.size(), kMaxTokenId + 1);
  }
  if (!tables.token_types.empty() && tables.token_types.size() != tables.tokens.size()) {
    return InvalidArgument("tokenizer.ggml.token_type has {} entries, tokens has {}",
                           tables.token_types.size(), tables.tokens.size());
  }
  const std::pair<std::string_view, std::optional<TokenId>> named[] = {
      {"bos", tables.bos}, {"eos", tables.eos}, {"unknown", tables.unk}, {"padding", tables.pad}};
  for (const auto& [name, id] : named) {
    if (id && (*id < 0 || *id >= static_cast<TokenId>(tables.tokens.size()))) {
      return InvalidArgument("tokenizer.ggml.{}_token_id is {}, outside the {} tokens", name, *id,
                             tables.tokens.size());
    }
  }
  return absl::OkStatus();
}

// The vocabulary, and the tokens that are sought in text as they are.
absl::StatusOr<std::vector<AddedToken>> AddTokens(const TokenizerTables& tables,
                                                  VocabularyBuilder& vocabulary) {
  for (std::size_t i = 0; i < tables.tokens.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(vocabulary.AddToken(static_cast<TokenId>(i), tables.tokens[i]));
  }
  std::vector<AddedToken> added;
  for (std::size_t i = 0; i < tables.token_types.size(); ++i) {
    const std::int32_t type = tables.token_types[i];
    const bool is_special = type == kControl || type == kUnknown;
    if (!is_special && type != kUserDefined) continue;
    QUIRE_ASSIGN_OR_RETURN(
        const TokenId id,
        vocabulary.AddAddedToken(static_cast<TokenId>(i), tables.tokens[i], is_special));
    added.push_back({.id = id, .content = tables.tokens[i], .is_special = is_special});
  }
  return added;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerFromTables(const TokenizerTables& tables) {
  QUIRE_RETURN_IF_ERROR(CheckTables(tables));
  QUIRE_ASSIGN_OR_RETURN(const PreTokenizerRecipe* recipe, FindRecipe(tables.pre));

  VocabularyBuilder vocabulary;
  QUIRE_ASSIGN_OR_RETURN(std::vector<AddedToken> added, AddTokens(tables, vocabulary));
  for (const std::string& merge : tables.merges) QUIRE_RETURN_IF_ERROR(vocabulary.AddMerge(merge));
  QUIRE_ASSIGN_OR_RETURN(AddedTokens added_tokens, AddedTokens::Create(std::move(added)));
  QUIRE_ASSIGN_OR_RETURN(AddedTokens none, AddedTokens::Create({}));

  PreTokenizer pre_tokenizer;
  for (const std::string_view pattern : recipe->patterns) {
    QUIRE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern));
    pre_tokenizer.AddSplit({.regex = std::move(regex)});
  }
  std::vector<NormalForm> normal_forms;
  if (recipe->normal_form) normal_forms.push_back(*recipe->normal_form);
  ByteLevelParts parts{
      .vocabulary = vocabulary.MakeVocabulary(),
      .added_as_written = std::move(added_tokens),
      .added_normalized = std::move(none),
      .normal_forms = std::move(normal_forms),
      .pre_tokenizer = std::move(pre_tokenizer),
      .bpe = vocabulary.MakeBpe({.ignore_merges = recipe->ignore_merges}),
      .prefix = {},
      .suffix = {},
      .bos = tables.bos,
      .eos = tables.eos,
  };
  if (tables.bos && tables.add_bos.value_or(recipe->add_bos)) parts.prefix = {*tables.bos};
  if (tables.eos && tables.add_eos.value_or(false)) parts.suffix = {*tables.eos};
  return MakeByteLevelTokenizer(std::move(parts));
}

}  // namespace quire::engine::text
