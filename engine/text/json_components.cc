#include "engine/text/json_components.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "engine/text/json_fields.h"

namespace quire::engine::text {
namespace {

using nlohmann::json;

absl::Status Refuse(std::string_view what, std::string_view type) {
  return Unimplemented("{} {} is not supported", what, type);
}

// The components of a Sequence, or the one component itself, in order. Sequences in sequences are
// legal and flattened; their depth is that of the JSON, which the parser has bounded.
absl::Status Flatten(const json& component, std::string_view what, std::string_view members,
                     int depth, std::vector<const json*>& out) {
  constexpr int kMaxDepth = 8;
  if (depth > kMaxDepth) return Unimplemented("{} is nested more than {} deep", what, kMaxDepth);
  QUIRE_ASSIGN_OR_RETURN(const std::string type, StringField(component, "type", what));
  if (type != "Sequence") {
    out.push_back(&component);
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const json* list, ArrayField(component, members, what));
  for (const json& member : *list) {
    QUIRE_RETURN_IF_ERROR(Flatten(member, what, members, depth + 1, out));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<const json*>> Components(const json* root, std::string_view what,
                                                    std::string_view members) {
  std::vector<const json*> components;
  if (root != nullptr) QUIRE_RETURN_IF_ERROR(Flatten(*root, what, members, 0, components));
  return components;
}

std::string TypeOf(const json& component) {
  return component["type"].get<std::string>();  // Components checked it.
}

absl::StatusOr<SplitBehavior> BehaviorNamed(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return Refuse("pre_tokenizer Split with behavior", name);
}

absl::StatusOr<SplitRule> ReadSplit(const json& split) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  const json* pattern = FindField(split, "pattern");
  std::string expression;
  if (pattern != nullptr && FindField(*pattern, "Regex") != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(expression, StringField(*pattern, "Regex", kWhere));
  } else if (pattern != nullptr && FindField(*pattern, "String") != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(expression, StringField(*pattern, "String", kWhere));
    expression = QuoteRegex(expression);
  } else {
    return InvalidArgument("{}.pattern must hold Regex or String", kWhere);
  }
  QUIRE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(expression));
  QUIRE_ASSIGN_OR_RETURN(const std::string name, StringField(split, "behavior", kWhere));
  QUIRE_ASSIGN_OR_RETURN(const SplitBehavior behavior, BehaviorNamed(name));
  QUIRE_ASSIGN_OR_RETURN(const bool invert, BoolField(split, "invert", false, kWhere));
  return SplitRule{.regex = std::move(regex), .behavior = behavior, .invert = invert};
}

absl::StatusOr<SplitRule> ReadDigits(const json& digits) {
  QUIRE_ASSIGN_OR_RETURN(const bool individual,
                         BoolField(digits, "individual_digits", false, "pre_tokenizer Digits"));
  QUIRE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(individual ? R"(\p{N})" : R"(\p{N}+)"));
  return SplitRule{.regex = std::move(regex)};
}

absl::Status AddByteLevel(const json& byte_level, PreTokenizer& pre_tokenizer) {
  constexpr std::string_view kWhere = "pre_tokenizer ByteLevel";
  QUIRE_ASSIGN_OR_RETURN(const bool add_prefix_space,
                         BoolField(byte_level, "add_prefix_space", true, kWhere));
  QUIRE_ASSIGN_OR_RETURN(const bool use_regex, BoolField(byte_level, "use_regex", true, kWhere));
  if (add_prefix_space) pre_tokenizer.AddPrefixSpace();
  if (use_regex) {
    QUIRE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(kGpt2Pattern));
    pre_tokenizer.AddSplit({.regex = std::move(regex)});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> TemplateIds(const json& processor, std::string_view name,
                                                 const VocabularyBuilder& vocabulary) {
  const json* tokens = FindField(processor, "special_tokens");
  const json* token = tokens == nullptr ? nullptr : FindField(*tokens, name);
  const json* ids = token == nullptr ? nullptr : FindField(*token, "ids");
  if (ids == nullptr || !ids->is_array()) {
    return InvalidArgument("post_processor TemplateProcessing has no ids for {}", name);
  }
  std::vector<TokenId> result;
  for (const json& value : *ids) {
    QUIRE_ASSIGN_OR_RETURN(const TokenId id,
                           IdOf(value, "post_processor TemplateProcessing.special_tokens ids"));
    if (!vocabulary.Contains(id)) {
      return InvalidArgument("post_processor TemplateProcessing adds id {}, which has no token",
                             id);
    }
    result.push_back(id);
  }
  return result;
}

absl::Status AddTemplate(const json& processor, const VocabularyBuilder& vocabulary,
                         SpecialFrame& frame) {
  constexpr std::string_view kWhere = "post_processor TemplateProcessing";
  QUIRE_ASSIGN_OR_RETURN(const json* pieces, ArrayField(processor, "single", kWhere));
  bool text_seen = false;
  for (const json& piece : *pieces) {
    if (FindField(piece, "Sequence") != nullptr) {
      if (text_seen) return Refuse(kWhere, "with the text twice");
      text_seen = true;
      continue;
    }
    const json* special = FindField(piece, "SpecialToken");
    if (special == nullptr) return InvalidArgument("{}.single holds an unknown piece", kWhere);
    QUIRE_ASSIGN_OR_RETURN(const std::string name, StringField(*special, "id", kWhere));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                           TemplateIds(processor, name, vocabulary));
    std::vector<TokenId>& side = text_seen ? frame.suffix : frame.prefix;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) return InvalidArgument("{}.single has no place for the text", kWhere);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<NormalForm>> ReadNormalizer(const json* normalizer) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<const json*> components,
                         Components(normalizer, "normalizer", "normalizers"));
  std::vector<NormalForm> forms;
  for (const json* component : components) {
    const std::string type = TypeOf(*component);
    if (type == "NFC") {
      forms.push_back(NormalForm::kNfc);
    } else if (type == "NFD") {
      forms.push_back(NormalForm::kNfd);
    } else if (type == "NFKC") {
      forms.push_back(NormalForm::kNfkc);
    } else if (type == "NFKD") {
      forms.push_back(NormalForm::kNfkd);
    } else {
      return Refuse("normalizer", type);
    }
  }
  return forms;
}

absl::StatusOr<PreTokenizer> ReadPreTokenizer(const json* root) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<const json*> components,
                         Components(root, "pre_tokenizer", "pretokenizers"));
  PreTokenizer pre_tokenizer;
  bool byte_level_seen = false;
  for (const json* component : components) {
    const std::string type = TypeOf(*component);
    if (byte_level_seen) return Refuse("pre_tokenizer", fmt::format("{} after ByteLevel", type));
    if (type == "Split") {
      QUIRE_ASSIGN_OR_RETURN(SplitRule rule, ReadSplit(*component));
      pre_tokenizer.AddSplit(std::move(rule));
    } else if (type == "Digits") {
      QUIRE_ASSIGN_OR_RETURN(SplitRule rule, ReadDigits(*component));
      pre_tokenizer.AddSplit(std::move(rule));
    } else if (type == "ByteLevel") {
      QUIRE_RETURN_IF_ERROR(AddByteLevel(*component, pre_tokenizer));
      byte_level_seen = true;
    } else {
      return Refuse("pre_tokenizer", type);
    }
  }
  if (!byte_level_seen) return Refuse("a pre_tokenizer", "without ByteLevel");
  return pre_tokenizer;
}

absl::Status CheckDecoder(const json* root) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<const json*> components,
                         Components(root, "decoder", "decoders"));
  for (const json* component : components) {
    if (TypeOf(*component) != "ByteLevel") return Refuse("decoder", TypeOf(*component));
  }
  if (components.size() != 1) return Refuse("a decoder", "other than one ByteLevel");
  return absl::OkStatus();
}

absl::StatusOr<SpecialFrame> ReadPostProcessor(const json* root,
                                               const VocabularyBuilder& vocabulary) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<const json*> components,
                         Components(root, "post_processor", "processors"));
  SpecialFrame frame;
  bool template_seen = false;
  for (const json* component : components) {
    const std::string type = TypeOf(*component);
    if (type == "ByteLevel") continue;  // Moves offsets only.
    if (type != "TemplateProcessing") return Refuse("post_processor", type);
    if (template_seen) return Refuse("post_processor", "with two TemplateProcessing");
    template_seen = true;
    QUIRE_RETURN_IF_ERROR(AddTemplate(*component, vocabulary, frame));
  }
  return frame;
}

}  // namespace quire::engine::text
