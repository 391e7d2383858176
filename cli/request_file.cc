#include "cli/request_file.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status.h"
#include "cli/request_fields.h"

namespace quire::cli {
namespace {

using nlohmann::json;

// Calls `parse(line, object)` for every line that is not blank; puts file and line before errors.
absl::Status ForEachObject(std::string_view content, const std::string& file_name,
                           const std::function<absl::Status(int, const json&)>& parse) {
  int line = 0;
  for (std::size_t begin = 0; begin < content.size(); ++line) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string_view text = content.substr(begin, end - begin);
    begin = end + 1;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    absl::Status status;
    try {
      const json object = json::parse(text);
      status = object.is_object()
                   ? parse(line, object)
                   : InvalidArgument("must be a JSON object, got {}", object.type_name());
    } catch (const json::parse_error& error) {
      status = InvalidArgument("is not valid JSON at byte {}", error.byte);
    } catch (const json::out_of_range&) {
      status = InvalidArgument("has a number beyond the range of double");
    }
    if (!status.ok()) {
      return InvalidArgument("{}:{}: {}", file_name, line + 1, AsStd(status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status SetTokenIds(const json& value, v1::GenerateRequest* request) {
  if (!value.is_array()) return InvalidArgument("prompt_ids: must be a list of token ids");
  auto* ids = request->mutable_token_ids()->mutable_ids();
  for (const json& id : value) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 0x7FFFFFFFU) {
      return InvalidArgument("prompt_ids[{}]: must be a token id, got {}", ids->size(), Brief(id));
    }
    ids->Add(id.get<std::int32_t>());
  }
  return absl::OkStatus();
}

absl::Status SetMessages(const json& value, v1::GenerateRequest* request) {
  if (!value.is_array()) return InvalidArgument("messages: must be a list");
  auto* messages = request->mutable_chat()->mutable_messages();
  for (const json& item : value) {
    const int index = messages->size();
    if (!item.is_object()) return InvalidArgument("messages[{}]: must be an object", index);
    auto* message = messages->Add();
    for (const auto& [key, text] : item.items()) {
      if (key != "role" && key != "content") {
        return InvalidArgument("messages[{}]: unknown key \"{}\"", index, key);
      }
      if (!text.is_string()) return InvalidArgument("messages[{}].{}: must be a text", index, key);
      (key == "role" ? message->mutable_role() : message->mutable_content())
          ->assign(text.get<std::string>());
    }
    for (const char* key : {"role", "content"}) {
      if (!item.contains(key)) return InvalidArgument("messages[{}].{} is missing", index, key);
    }
  }
  return absl::OkStatus();
}

absl::Status SetPrompt(const std::string& key, const json& value, v1::GenerateRequest* request) {
  if (key == "prompt_ids") return SetTokenIds(value, request);
  if (key == "messages") return SetMessages(value, request);
  if (!value.is_string()) return InvalidArgument("prompt: must be a text");
  request->mutable_text()->set_text(value.get<std::string>());
  return absl::OkStatus();
}

absl::Status FillRequest(const json& object, v1::GenerateRequest* request) {
  const auto is_prompt = [](const std::string& key) {
    return key == "prompt" || key == "prompt_ids" || key == "messages";
  };
  int num_prompts = 0;
  for (const auto& [key, value] : object.items()) {
    if (!is_prompt(key)) continue;
    if (++num_prompts > 1) break;
    QUIRE_RETURN_IF_ERROR(SetPrompt(key, value, request));
  }
  if (num_prompts != 1) {
    return InvalidArgument("needs exactly one of \"prompt\", \"prompt_ids\" and \"messages\"");
  }
  for (const auto& [key, value] : object.items()) {
    if (!is_prompt(key)) QUIRE_RETURN_IF_ERROR(SetField(key, value, request));
  }
  return CheckRequest(*request);
}

}  // namespace

absl::StatusOr<std::vector<RequestLine>> ParseRequestLines(std::string_view content,
                                                           const std::string& file_name,
                                                           const v1::GenerateRequest& defaults) {
  std::vector<RequestLine> lines;
  QUIRE_RETURN_IF_ERROR(ForEachObject(content, file_name, [&](int line, const json& object) {
    lines.push_back({line, defaults});
    return FillRequest(object, &lines.back().request);
  }));
  return lines;
}

absl::StatusOr<std::vector<std::string>> ParseTextLines(std::string_view content,
                                                        const std::string& file_name) {
  std::vector<std::string> texts;
  QUIRE_RETURN_IF_ERROR(
      ForEachObject(content, file_name, [&](int, const json& object) -> absl::Status {
        for (const auto& [key, value] : object.items()) {
          if (key != "text") return InvalidArgument("unknown key \"{}\"", key);
          if (!value.is_string()) return InvalidArgument("text: must be a text");
        }
        if (!object.contains("text")) return InvalidArgument("needs \"text\"");
        texts.push_back(object["text"].get<std::string>());
        return absl::OkStatus();
      }));
  return texts;
}

}  // namespace quire::cli
