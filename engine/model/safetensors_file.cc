#include "engine/model/safetensors_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/text/json_fields.h"
#include "nlohmann/json.hpp"

namespace quire::engine::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // The format's own limit.

struct ElementType {
  std::string_view name;
  std::int64_t bytes;
  std::optional<TensorType> type;  // Empty: known but not read.
};
constexpr std::array<ElementType, 15> kElementTypes = {{
    {"F32", 4, TensorType::kF32},
    {"F16", 2, TensorType::kF16},
    {"BF16", 2, TensorType::kBf16},
    {"F64", 8, std::nullopt},
    {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
    {"I64", 8, std::nullopt},
    {"I32", 4, std::nullopt},
    {"I16", 2, std::nullopt},
    {"I8", 1, std::nullopt},
    {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},
    {"U16", 2, std::nullopt},
    {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
}};

struct Placed {
  std::string name;
  std::uint64_t begin, end;
};

class Parser {
 public:
  explicit Parser(const std::shared_ptr<const File>& file) : file_(file) {}

  absl::StatusOr<SafetensorsFile> Run() {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadHeader());
    QUIRE_ASSIGN_OR_RETURN(const json header, ParseHeader(text));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      QUIRE_RETURN_IF_ERROR(AddTensor(name, entry));
    }
    QUIRE_RETURN_IF_ERROR(CheckPlaces());
    return std::move(result_);
  }

 private:
  const std::string& path() const { return file_->path(); }

  absl::StatusOr<std::string> ReadHeader() {
    std::uint64_t length = 0;
    QUIRE_RETURN_IF_ERROR(
        file_->ReadAt(0, std::as_writable_bytes(std::span(&length, 1)), "the header's length"));
    if (length > kMaxHeaderBytes || length > file_->size() - sizeof length) {
      return InvalidArgument(
          "{}: claims a header of {} bytes; the file has {} bytes and at most {} are accepted",
          path(), length, file_->size(), kMaxHeaderBytes);
    }
    std::string text(length, '\0');
    QUIRE_RETURN_IF_ERROR(
        file_->ReadAt(sizeof length, std::as_writable_bytes(std::span<char>(text)), "the header"));
    data_begin_ = sizeof length + length;
    return text;
  }

  // The library keeps the last of equal keys, so a callback looks for them.
  absl::StatusOr<json> ParseHeader(const std::string& header_text) {
    std::set<std::string> names;
    std::optional<std::string> duplicate;
    const auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth == 1 && event == json::parse_event_t::key) {
        auto [it, is_new] = names.insert(parsed.get<std::string>());
        if (!is_new) duplicate = *it;
      }
      return true;
    };
    QUIRE_ASSIGN_OR_RETURN(json header, text::ParseJson(header_text,
                                                        fmt::format("{}: the header of {} bytes",
                                                                    path(), header_text.size()),
                                                        callback));
    if (duplicate.has_value()) {
      return InvalidArgument("{}: tensor {} appears twice", path(), *duplicate);
    }
    if (!header.is_object()) return InvalidArgument("{}: the header is not an object", path());
    return header;
  }

  absl::Status Bad(const std::string& name, std::string_view what) const {
    return InvalidArgument("{}: tensor {}: {}", path(), name, what);
  }

  absl::Status AddTensor(const std::string& name, const json& entry) {
    if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
        !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
        !entry["data_offsets"].is_array()) {
      return Bad(name, "must have dtype, shape and data_offsets");
    }
    const auto dtype = entry["dtype"].get<std::string>();
    const auto* element = std::find_if(kElementTypes.begin(), kElementTypes.end(),
                                       [&](const ElementType& e) { return e.name == dtype; });
    if (element == kElementTypes.end()) {
      return Unimplemented("{}: tensor {} has the unknown type {}", path(), name, dtype);
    }
    std::vector<std::int64_t> shape;
    for (const json& dimension : entry["shape"]) {
      if (!dimension.is_number_unsigned() || dimension.get<std::uint64_t>() > INT64_MAX) {
        return Bad(name, "shape must hold whole numbers");
      }
      shape.push_back(dimension.get<std::int64_t>());
    }
    QUIRE_ASSIGN_OR_RETURN(const Placed place, ReadOffsets(name, entry["data_offsets"]));
    QUIRE_ASSIGN_OR_RETURN(const std::int64_t elements, CountElements(name, shape));
    const std::uint64_t size = place.end - place.begin;
    if (size / static_cast<std::uint64_t>(element->bytes) != static_cast<std::uint64_t>(elements) ||
        size % static_cast<std::uint64_t>(element->bytes) != 0) {
      return Bad(name,
                 fmt::format("{} {} does not match its {} bytes", dtype, ShapeString(shape), size));
    }
    places_.push_back(place);
    if (!element->type.has_value() || elements == 0) {
      result_.unsupported.push_back({name, elements == 0 ? dtype + " without elements" : dtype});
      return absl::OkStatus();
    }
    result_.tensors.push_back({.name = name,
                               .type = *element->type,
                               .shape = std::move(shape),
                               .file = file_,
                               .offset = data_begin_ + place.begin,
                               .bytes = static_cast<std::int64_t>(size)});
    return absl::OkStatus();
  }

  absl::StatusOr<std::int64_t> CountElements(const std::string& name,
                                             const std::vector<std::int64_t>& shape) const {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
    const auto elements = CheckedElements(shape);
    if (elements.has_value()) return *elements;
    return Bad(name, fmt::format("has the impossible shape {}", ShapeString(shape)));
  }

  absl::StatusOr<Placed> ReadOffsets(const std::string& name, const json& offsets) const {
    if (offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      return Bad(name, "data_offsets must be two whole numbers");
    }
    const Placed place{name, offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>()};
    const std::uint64_t data_bytes = file_->size() - data_begin_;
    if (place.begin > place.end || place.end > data_bytes) {
      return Bad(name,
                 fmt::format("data_offsets [{}, {}] do not lie in the file's {} bytes of data",
                             place.begin, place.end, data_bytes));
    }
    return place;
  }

  // The tensors must cover the data exactly.
  absl::Status CheckPlaces() {
    std::sort(places_.begin(), places_.end(), [](const Placed& a, const Placed& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t end = 0;
    for (const Placed& place : places_) {
      if (place.begin != end) {
        return Bad(place.name,
                   fmt::format("begins at data offset {}, but the tensor before it "
                               "ends at {} ({})",
                               place.begin, end, place.begin < end ? "overlap" : "hole"));
      }
      end = place.end;
    }
    if (end != file_->size() - data_begin_) {
      return InvalidArgument(
          "{}: the tensors end at data offset {}, but the file has {} bytes of "
          "data",
          path(), end, file_->size() - data_begin_);
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const File>& file_;
  std::uint64_t data_begin_ = 0;
  std::vector<Placed> places_;
  SafetensorsFile result_;
};

}  // namespace

absl::StatusOr<SafetensorsFile> ParseSafetensors(const std::shared_ptr<const File>& file) {
  return Parser(file).Run();
}

}  // namespace quire::engine::model
