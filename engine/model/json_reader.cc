#include "engine/model/json_reader.h"

#include <cmath>

#include "base/status.h"
#include "engine/model/file.h"
#include "engine/text/json_fields.h"

namespace quire::engine::model {

using nlohmann::json;

absl::StatusOr<json> ReadJsonFile(const std::string& path) {
  constexpr std::uint64_t kMaxBytes = 16 << 20;
  QUIRE_ASSIGN_OR_RETURN(const std::string content, ReadTextFile(path, kMaxBytes));
  QUIRE_ASSIGN_OR_RETURN(json parsed, text::ParseJson(content, path));
  if (!parsed.is_object()) return InvalidArgument("{}: not a JSON object", path);
  return parsed;
}

void JsonReader::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

absl::Status JsonReader::BadType(std::string_view key, std::string_view wanted) const {
  return InvalidArgument("{}: {}{} must be {}", path_, prefix_, key, wanted);
}

const json* JsonReader::Find(std::string_view key) const {
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> JsonReader::OptionalInteger(std::string_view key, std::int64_t min,
                                                        std::int64_t max) {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX) &&
                    value->get<std::int64_t>() >= min && value->get<std::int64_t>() <= max;
  if (fits) return value->get<std::int64_t>();
  Fail(BadType(key, fmt::format("a whole number in [{}, {}]{}", min, max,
                                value->is_number() ? ", got " + value->dump() : "")));
  return std::nullopt;
}

std::int32_t JsonReader::Integer(std::string_view key, std::int32_t min, std::int32_t max) {
  if (!Has(key)) Fail(InvalidArgument("{}: {}{} is missing", path_, prefix_, key));
  return IntegerOr(key, min, min, max);
}

std::int32_t JsonReader::IntegerOr(std::string_view key, std::int32_t fallback, std::int32_t min,
                                   std::int32_t max) {
  return static_cast<std::int32_t>(OptionalInteger(key, min, max).value_or(fallback));
}

std::optional<double> JsonReader::OptionalNumber(std::string_view key) {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  Fail(BadType(key, "a finite number"));
  return std::nullopt;
}

double JsonReader::NumberOr(std::string_view key, double fallback) {
  return OptionalNumber(key).value_or(fallback);
}

bool JsonReader::BooleanOr(std::string_view key, bool fallback) {
  const json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(BadType(key, "true or false"));
  return fallback;
}

std::string JsonReader::TextOr(std::string_view key, std::string_view fallback) {
  const json* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  Fail(BadType(key, "a string"));
  return std::string(fallback);
}

}  // namespace quire::engine::model
