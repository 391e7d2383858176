#include "engine/text/json_fields.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <system_error>

#include "base/status.h"

namespace quire::engine::text {

using nlohmann::json;

const json* FindField(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<std::string> StringField(const json& object, std::string_view key,
                                        std::string_view where) {
  const json* field = FindField(object, key);
  if (field == nullptr || !field->is_string()) {
    return InvalidArgument("{}.{} must be a string", where, key);
  }
  return field->get_ref<const std::string&>();
}

absl::StatusOr<bool> BoolField(const json& object, std::string_view key, bool fallback,
                               std::string_view where) {
  const json* field = FindField(object, key);
  if (field == nullptr) return fallback;
  if (!field->is_boolean()) return InvalidArgument("{}.{} must be true or false", where, key);
  return field->get<bool>();
}

absl::StatusOr<const json*> ArrayField(const json& object, std::string_view key,
                                       std::string_view where) {
  const json* field = FindField(object, key);
  if (field == nullptr || !field->is_array()) {
    return InvalidArgument("{}.{} must be a list", where, key);
  }
  return field;
}

absl::StatusOr<std::int32_t> IdOf(const json& value, std::string_view where) {
  if (value.is_number_integer()) {
    constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= kMax
                                                 : value.get<std::int64_t>() >= 0;
    if (fits) return value.get<std::int32_t>();
  }
  return InvalidArgument("{} must be a token id", where);
}

std::string Brief(const json& value) {
  if (value.is_string()) return fmt::format("\"{}\"", value.get_ref<const std::string&>());
  if (value.is_structured()) return fmt::format("({})", value.type_name());
  return value.dump();
}

absl::StatusOr<json> ParseJson(std::string_view text, std::string_view where,
                               const json::parser_callback_t& callback) {
  try {
    return json::parse(text, callback);
  } catch (const json::parse_error& error) {
    return InvalidArgument("{}: not JSON at byte {}", where, error.byte);
  } catch (const json::out_of_range&) {
    return InvalidArgument("{}: has a number beyond the range of double", where);
  }
}

absl::StatusOr<json> ReadJsonFile(const std::string& path, std::size_t max_bytes) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return NotFound("{}: {}", path, error.message());
  if (size > max_bytes) {
    return InvalidArgument("{} has {} bytes, more than {}", path, size, max_bytes);
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return NotFound("{} cannot be read", path);
  QUIRE_ASSIGN_OR_RETURN(json parsed, ParseJson(text, path));
  if (!parsed.is_object()) return InvalidArgument("{} is not a JSON object", path);
  return parsed;
}

}  // namespace quire::engine::text
