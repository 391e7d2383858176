#include "cli/request_fields.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/status.h"
#include "cli/units.h"
#include "engine/intake.h"
#include "engine/text/utf8.h"
#include "server/convert.h"

namespace quire::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using nlohmann::json;

struct FieldHelp {
  std::string_view name;
  std::string_view text;
};
constexpr FieldHelp kHelp[] = {
    {"temperature", "0 to 2; 0 picks the likeliest token"},
    {"top_p", "keep the likeliest tokens up to this probability, above 0 to 1"},
    {"top_k", "keep this many of the likeliest tokens; 0: all"},
    {"min_p", "keep tokens at least this likely relative to the best, 0 to 1"},
    {"seed", "of the random numbers; unset: drawn and reported"},
    {"n", "answers per prompt; more than one need a temperature above 0"},
    {"presence_penalty", "-2 to 2"},
    {"frequency_penalty", "-2 to 2"},
    {"repetition_penalty", "above 0; 1 is none"},
    {"logit_bias", "added to a token's logit; may be repeated"},
    {"allowed_token_ids", "only these tokens may come"},
    {"bad_words", "a text that must not come; may be repeated"},
    {"max_tokens", "of the answer, cut to what the context holds; unset: all of that"},
    {"min_tokens", "no end of sequence before this many"},
    {"ignore_eos", "go on after the model's end of sequence"},
    {"stop", "a text that ends the answer; may be repeated"},
    {"stop_token_ids", "tokens that end the answer"},
    {"include_stop_str_in_output", "keep the stop text in the answer"},
    {"logprobs", "report this many alternatives per token; -1: all"},
    {"prompt_logprobs", "the same for the prompt's tokens"},
    {"truncate_prompt_tokens", "keep the last so many tokens of the prompt; -1: what fits"},
    {"detokenize", "report text, not only ids (default)"},
    {"skip_special_tokens", "leave control tokens out of the text (default)"},
    {"request_id", "of the request, in logs and for abort"},
    {"model", "name of the served model; empty: whatever is served"},
    {"priority", "lower is more urgent; for --scheduling-policy priority"},
    {"cache_salt", "share cached prefixes only with requests of the same salt"},
    {"bypass_prefix_cache", "compute the whole prompt, cached or not"},
    {"session_id", "keep the answer's blocks for the next turn of this session"},
    {"continue_session", "the prompt is only what is new since the session's last turn"},
    {"client_id", "whose share of the server this is; for --client-quantum"},
    {"parse_special", "control tokens written in the prompt are control tokens"},
    {"add_special", "put BOS and EOS as the tokenizer's rules say (default)"},
};

// Fields of `message` that hold plain values (no prompts, no nested messages except maps).
std::vector<const FieldDescriptor*> PlainFields(const google::protobuf::Descriptor* message) {
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!is_message || field->is_map()) fields.push_back(field);
  }
  return fields;
}

// The text prompt's switches; its text is no field of its own.
bool IsTextPromptField(const FieldDescriptor* field) {
  return field->containing_type() == v1::TextPrompt::descriptor();
}

std::vector<const FieldDescriptor*> AllFields() {
  std::vector<const FieldDescriptor*> fields = PlainFields(v1::SamplingParams::descriptor());
  for (const auto* field : PlainFields(v1::GenerateRequest::descriptor())) fields.push_back(field);
  for (const auto* field : PlainFields(v1::TextPrompt::descriptor())) {
    if (field->name() != "text") fields.push_back(field);
  }
  return fields;
}

absl::StatusOr<std::int32_t> ToInt32(const json& value) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  const bool fits_signed = value.is_number_integer() && !value.is_number_unsigned();
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{kMax}) {
    return value.get<std::int32_t>();
  }
  if (fits_signed && value.get<std::int64_t>() >= kMin && value.get<std::int64_t>() <= kMax) {
    return value.get<std::int32_t>();
  }
  return InvalidArgument("must be a whole number of at most 32 bits, got {}", Brief(value));
}

// Appends (repeated) or sets one plain value.
absl::Status Store(const FieldDescriptor* field, const json& value, Message* message) {
  const auto* reflection = message->GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (!value.is_number()) return InvalidArgument("must be a number, got {}", Brief(value));
      reflection->SetDouble(message, field, value.get<double>());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_INT32: {
      QUIRE_ASSIGN_OR_RETURN(const std::int32_t number, ToInt32(value));
      if (repeated) {
        reflection->AddInt32(message, field, number);
      } else {
        reflection->SetInt32(message, field, number);
      }
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64:
      if (!value.is_number_unsigned()) {
        return InvalidArgument("must be a whole number from 0 to 2^64 - 1, got {}", Brief(value));
      }
      reflection->SetUInt64(message, field, value.get<std::uint64_t>());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!value.is_boolean()) {
        return InvalidArgument("must be true or false, got {}", Brief(value));
      }
      reflection->SetBool(message, field, value.get<bool>());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_STRING: {
      if (!value.is_string()) return InvalidArgument("must be a text, got {}", Brief(value));
      const auto text = value.get<std::string>();
      if (const auto at = engine::text::FindInvalidUtf8(text)) {
        return InvalidArgument("is not valid UTF-8 at byte {}", *at);
      }
      if (repeated) {
        reflection->AddString(message, field, text);
      } else {
        reflection->SetString(message, field, text);
      }
      return absl::OkStatus();
    }
    default:
      return Unimplemented("has a type that only programs can set");
  }
}

absl::Status StoreLogitBias(const json& value, v1::SamplingParams* sampling) {
  if (!value.is_object()) {
    return InvalidArgument("must be an object of token id to number, got {}", Brief(value));
  }
  for (const auto& [key, bias] : value.items()) {
    const auto id = ParseInt(key);
    if (!id.ok() || *id < std::numeric_limits<std::int32_t>::min() ||
        *id > std::numeric_limits<std::int32_t>::max()) {
      return InvalidArgument("\"{}\" is not a token id", key);
    }
    if (!bias.is_number()) return InvalidArgument("[{}] must be a number", key);
    (*sampling->mutable_logit_bias())[static_cast<std::int32_t>(*id)] = bias.get<double>();
  }
  return absl::OkStatus();
}

absl::Status StoreField(const FieldDescriptor* field, const json& value, Message* message,
                        v1::GenerateRequest* request) {
  if (field->is_map()) {
    request->mutable_sampling()->clear_logit_bias();
    return StoreLogitBias(value, request->mutable_sampling());
  }
  if (!field->is_repeated()) return Store(field, value, message);
  if (!value.is_array()) return InvalidArgument("must be a list, got {}", Brief(value));
  message->GetReflection()->ClearField(message, field);
  for (const json& item : value) QUIRE_RETURN_IF_ERROR(Store(field, item, message));
  return absl::OkStatus();
}

// --- Flags ----------------------------------------------------------------------------------

// The text of a flag as the JSON value that SetField would get for it.
absl::StatusOr<json> ScalarFromText(const FieldDescriptor* field, const std::string& text) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      QUIRE_ASSIGN_OR_RETURN(const double number, ParseDouble(text));
      return json(number);
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      QUIRE_ASSIGN_OR_RETURN(const std::int64_t number, ParseInt(text));
      return json(number);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      QUIRE_ASSIGN_OR_RETURN(const std::uint64_t number, ParseUint(text));
      return json(number);
    }
    default:
      return json(text);
  }
}

absl::StatusOr<json> MapFromTexts(const std::vector<std::string>& texts) {
  json object = json::object();
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) return InvalidArgument("\"{}\" is not ID=BIAS", text);
    QUIRE_ASSIGN_OR_RETURN(const double bias,
                           ParseDouble(std::string_view(text).substr(equals + 1)));
    object[text.substr(0, equals)] = bias;
  }
  return object;
}

absl::StatusOr<json> FromTexts(const FieldDescriptor* field,
                               const std::vector<std::string>& texts) {
  if (field->is_map()) return MapFromTexts(texts);
  if (!field->is_repeated()) return ScalarFromText(field, texts.back());
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) return json(texts);
  json ids = json::array();
  for (const std::string& text : texts) {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<TokenId> list, ParseTokenIds(text));
    for (const TokenId id : list) ids.push_back(id);
  }
  return ids;
}

std::string Kebab(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string TypeName(const FieldDescriptor* field) {
  if (field->is_map()) return "ID=BIAS";
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "NUMBER";
    case FieldDescriptor::CPPTYPE_STRING:
      return "TEXT";
    default:
      return field->is_repeated() ? "ID,ID,…" : "N";
  }
}

void SetFromFlag(const std::string& flag, const FieldDescriptor* field,
                 const absl::StatusOr<json>& value, v1::GenerateRequest* request) {
  absl::Status status = value.status();
  if (status.ok()) status = SetField(field->name(), *value, request);
  if (status.ok()) return;
  std::string message(status.message());
  const std::string prefix = field->name() + ": ";
  if (message.starts_with(prefix)) message.erase(0, prefix.size());
  throw CLI::ValidationError(flag, message);
}

}  // namespace

std::string Brief(const json& value) {
  if (value.is_structured()) return fmt::format("an {}", value.type_name());
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> RequestFieldNames() {
  std::vector<std::string> names;
  for (const auto* field : AllFields()) names.push_back(field->name());
  return names;
}

std::string_view RequestFieldHelp(std::string_view name) {
  for (const FieldHelp& help : kHelp) {
    if (help.name == name) return help.text;
  }
  return "";
}

absl::Status SetField(const std::string& name, const json& value, v1::GenerateRequest* request) {
  const FieldDescriptor* field = nullptr;
  for (const auto* candidate : AllFields()) {
    if (candidate->name() == name) field = candidate;
  }
  if (field == nullptr) return InvalidArgument("unknown key \"{}\"", name);
  if (value.is_null()) return absl::OkStatus();
  Message* message = request;
  if (field->containing_type() == v1::SamplingParams::descriptor()) {
    message = request->mutable_sampling();
  } else if (IsTextPromptField(field)) {
    if (request->has_token_ids() || request->has_chat()) {
      return InvalidArgument("{}: applies to a text prompt only", name);
    }
    message = request->mutable_text();
  }
  const absl::Status status = StoreField(field, value, message, request);
  if (status.ok()) return status;
  return InvalidArgument("{}: {}", name, AsStd(status.message()));
}

absl::Status CheckRequest(const v1::GenerateRequest& request) {
  QUIRE_ASSIGN_OR_RETURN(const engine::GenerationRequest converted,
                         server::ToEngine(request, request.model(), absl::InfiniteFuture()));
  return engine::Intake::CheckFields(converted, converted.sampling,
                                     std::numeric_limits<std::int32_t>::max());
}

std::string AsFlag(std::string_view message) {
  const std::size_t end = std::min(message.find_first_of(" ["), message.size());
  return fmt::format("--{}{}", Kebab(std::string(message.substr(0, end))), message.substr(end));
}

void AddRequestFlags(CLI::App& app, v1::GenerateRequest* request,
                     const std::set<std::string>& without) {
  for (const auto* field : AllFields()) {
    if (field->name() == "model") continue;  // --model names the files.
    if (without.contains(field->name())) continue;
    const std::string flag = "--" + Kebab(field->name());
    const std::string help(RequestFieldHelp(field->name()));
    CLI::Option* option = nullptr;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      option = app.add_flag_function(
          flag + ",!--no-" + Kebab(field->name()),
          [flag, field, request](std::int64_t count) {
            SetFromFlag(flag, field, json(count > 0), request);
          },
          help);
    } else {
      option = app.add_option_function<std::vector<std::string>>(
          flag,
          [flag, field, request](const std::vector<std::string>& texts) {
            SetFromFlag(flag, field, FromTexts(field, texts), request);
          },
          help);
      option->type_name(TypeName(field))->allow_extra_args(false);
      if (!field->is_repeated()) option->expected(1);
    }
    option->group("Sampling and request");
  }
}

}  // namespace quire::cli
