#include "simulator/trace_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/status.h"

namespace quire::simulator {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShown = 40;

// What was found, short enough for a message and safe to print.
std::string Shown(const json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

// Cuts off the text up to the next `separator`.
std::string_view NextPiece(std::string_view* rest, char separator) {
  const std::size_t end = rest->find(separator);
  const std::string_view piece = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  return piece;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

template <class Handle>
absl::Status ForEachLine(std::string_view text, const Handle& handle) {
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const std::string_view content = Trimmed(NextPiece(&text, '\n'));
    if (!content.empty()) QUIRE_RETURN_IF_ERROR(handle(content, line));
  }
  return absl::OkStatus();
}

std::vector<std::string_view> Cells(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::string_view rest = line;; rest.remove_prefix(1)) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    cells.push_back(Trimmed(rest.substr(0, end)));
    rest.remove_prefix(end);
    if (rest.empty()) return cells;
  }
}

json CellValue(std::string_view cell) {
  const char* const end = cell.data() + cell.size();
  const auto whole = [end](const std::from_chars_result& parsed) {
    return parsed.ptr == end && parsed.ec == std::errc();
  };
  std::int64_t integer = 0;
  if (whole(std::from_chars(cell.data(), end, integer))) return integer;
  double number = 0;
  if (whole(std::from_chars(cell.data(), end, number)) && std::isfinite(number)) return number;
  return std::string(cell);
}

}  // namespace

absl::Status FieldReader::Error(const std::string& name, const std::string& what) const {
  return InvalidArgument("line {}: \"{}\" {}", line_, name, what);
}

absl::Status FieldReader::Find(const std::string& name, const json** value) {
  known_.insert(name);
  const auto found = object_.find(name);
  if (found == object_.end()) return Error(name, "is missing");
  *value = &*found;
  return absl::OkStatus();
}

absl::Status FieldReader::Int(const std::string& name, std::int64_t min, std::int64_t max,
                              std::int64_t* value) {
  const json* found = nullptr;
  QUIRE_RETURN_IF_ERROR(Find(name, &found));
  // A number beyond int64 is unsigned to the JSON reader.
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() ||
                     found->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (!fits || found->get<std::int64_t>() < min || found->get<std::int64_t>() > max) {
    return Error(
        name, fmt::format("must be a whole number in [{}, {}], got {}", min, max, Shown(*found)));
  }
  *value = found->get<std::int64_t>();
  return absl::OkStatus();
}

absl::Status FieldReader::Int(const std::string& name, std::int64_t min, std::int64_t max,
                              std::int32_t* value) {
  std::int64_t wide = 0;
  QUIRE_RETURN_IF_ERROR(Int(name, min, max, &wide));
  *value = static_cast<std::int32_t>(wide);
  return absl::OkStatus();
}

absl::Status FieldReader::Number(const std::string& name, double min, double max, double* value) {
  const json* found = nullptr;
  QUIRE_RETURN_IF_ERROR(Find(name, &found));
  const double number = found->is_number() ? found->get<double>() : std::nan("");
  if (!(number >= min && number <= max)) {
    return Error(name,
                 fmt::format("must be a number in [{}, {}], got {}", min, max, Shown(*found)));
  }
  *value = number;
  return absl::OkStatus();
}

absl::Status FieldReader::String(const std::string& name, std::string* value) {
  const json* found = nullptr;
  QUIRE_RETURN_IF_ERROR(Find(name, &found));
  // In CSV a name may look like a number.
  if (found->is_number()) {
    *value = found->dump();
  } else if (found->is_string() && !found->get_ref<const std::string&>().empty()) {
    *value = found->get<std::string>();
  } else {
    return Error(name, fmt::format("must be a text, got {}", Shown(*found)));
  }
  return absl::OkStatus();
}

absl::Status FieldReader::TokenIds(const std::string& name, std::vector<TokenId>* value) {
  const json* found = nullptr;
  QUIRE_RETURN_IF_ERROR(Find(name, &found));
  if (!found->is_array() || found->empty()) {
    return Error(name, fmt::format("must be an array of token ids, got {}", Shown(*found)));
  }
  value->clear();
  for (const json& id : *found) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) {
      return Error(name,
                   fmt::format("must hold token ids in [0, {}], got {}", INT32_MAX, Shown(id)));
    }
    value->push_back(id.get<TokenId>());
  }
  return absl::OkStatus();
}

absl::Status FieldReader::NoOthers() const {
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) return Error(name, "is no field of this format");
  }
  return absl::OkStatus();
}

absl::Status ForEachJsonLine(std::string_view text, const LineHandler& handle) {
  return ForEachLine(text, [&](std::string_view content, std::int64_t line) -> absl::Status {
    const json object = json::parse(content, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return InvalidArgument("line {}: not a JSON object", line);
    FieldReader fields(object, line);
    return handle(fields);
  });
}

absl::Status ForEachCsvLine(std::string_view text, const LineHandler& handle) {
  std::vector<std::string> names;
  return ForEachLine(text, [&](std::string_view content, std::int64_t line) -> absl::Status {
    if (content.find('"') != std::string_view::npos) {
      return InvalidArgument(
          "line {}: quotes are not understood: cells are numbers or plain words, parted by commas",
          line);
    }
    const std::vector<std::string_view> cells = Cells(content);
    if (names.empty()) {
      for (const std::string_view cell : cells) {
        if (cell.empty()) return InvalidArgument("line {}: a field has no name", line);
        if (CellValue(cell).is_number()) {
          return InvalidArgument(
              "line {}: the first line must name the fields, as in "
              "arrival_s,prompt_tokens,output_tokens, got {}",
              line, cell);
        }
        if (std::ranges::find(names, cell) != names.end()) {
          return InvalidArgument("line {}: two fields are named \"{}\"", line, cell);
        }
        names.emplace_back(cell);
      }
      return absl::OkStatus();
    }
    if (cells.size() != names.size()) {
      return InvalidArgument("line {}: {} cells under {} names", line, cells.size(), names.size());
    }
    json object = json::object();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i].empty()) object[names[i]] = CellValue(cells[i]);
    }
    FieldReader fields(object, line);
    return handle(fields);
  });
}

}  // namespace quire::simulator
