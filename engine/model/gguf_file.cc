#include "engine/model/gguf_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "base/status.h"

namespace quire::engine::model {
namespace {

constexpr std::uint64_t kMaxStringBytes = 16 << 20;
constexpr std::uint64_t kMaxArrayElements = 16 << 20;
constexpr std::uint64_t kMaxAlignment = 65536;
constexpr std::uint64_t kDefaultAlignment = 32;
// The fewest bytes that a metadata pair (key length, type, one byte) and a tensor's description
// (name length, dimensions, one dimension, type, offset) can take: bounds for the counts.
constexpr std::uint64_t kMinPairBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

enum ValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
// Bytes of one value of each type at least (a string has its length).
constexpr std::array<std::uint64_t, 13> kMinValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

// ggml's type numbers. Empty: retired numbers.
constexpr std::array<std::string_view, 40> kGgmlTypeNames = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
    "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

std::optional<TensorType> TensorTypeOf(std::uint32_t ggml_type) {
  switch (ggml_type) {
    case 0:
      return TensorType::kF32;
    case 1:
      return TensorType::kF16;
    case 2:
      return TensorType::kQ4_0;
    case 3:
      return TensorType::kQ4_1;
    case 8:
      return TensorType::kQ8_0;
    case 30:
      return TensorType::kBf16;
    default:
      return std::nullopt;
  }
}

std::uint64_t AlignUp(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

// Reads values one after the other through a buffer; an error says where and what for.
class Cursor {
 public:
  explicit Cursor(const File& file) : file_(file) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return file_.size() - position_; }

  absl::Status Read(std::span<std::byte> out, std::string_view what) {
    while (!out.empty()) {
      if (position_ < buffer_begin_ || position_ >= buffer_begin_ + buffer_.size()) {
        QUIRE_RETURN_IF_ERROR(Refill(out.size(), what));
      }
      const std::size_t from = static_cast<std::size_t>(position_ - buffer_begin_);
      const std::size_t n = std::min(out.size(), buffer_.size() - from);
      std::memcpy(out.data(), buffer_.data() + from, n);
      position_ += n;
      out = out.subspan(n);
    }
    return absl::OkStatus();
  }

  template <class T>
  absl::StatusOr<T> ReadAs(std::string_view what) {
    T value;
    QUIRE_RETURN_IF_ERROR(Read(std::as_writable_bytes(std::span(&value, 1)), what));
    return value;
  }

  absl::StatusOr<std::string> ReadString(std::string_view what) {
    const std::uint64_t at = position_;
    QUIRE_ASSIGN_OR_RETURN(const auto length, ReadAs<std::uint64_t>(what));
    if (length > remaining() || length > kMaxStringBytes) {
      return InvalidArgument(
          "{}: {} at offset {} claims a string of {} bytes; {} bytes of the file are left and at "
          "most {} are accepted",
          file_.path(), what, at, length, remaining(), kMaxStringBytes);
    }
    std::string text(length, '\0');
    QUIRE_RETURN_IF_ERROR(Read(std::as_writable_bytes(std::span<char>(text)), what));
    return text;
  }

 private:
  absl::Status Refill(std::size_t wanted, std::string_view what) {
    constexpr std::uint64_t kBufferBytes = 256 << 10;
    const std::uint64_t n = std::min(remaining(), kBufferBytes);
    if (n == 0) {
      return absl::OutOfRangeError(
          fmt::format("{}: {} needs {} bytes at offset {}, where the file ends", file_.path(), what,
                      wanted, position_));
    }
    buffer_.resize(n);
    buffer_begin_ = position_;
    return file_.ReadAt(position_, buffer_, what);
  }

  const File& file_;
  std::uint64_t position_ = 0;
  std::uint64_t buffer_begin_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

class GgufFile::Parser {
 public:
  explicit Parser(GgufFile& result) : result_(result), cursor_(*result.file_) {}

  absl::Status Run() {
    QUIRE_RETURN_IF_ERROR(ReadHeader());
    for (std::uint64_t i = 0; i < num_pairs_; ++i) QUIRE_RETURN_IF_ERROR(ReadPair());
    QUIRE_RETURN_IF_ERROR(ReadAlignment());
    for (std::uint64_t i = 0; i < num_tensors_; ++i) QUIRE_RETURN_IF_ERROR(ReadTensor());
    return PlaceTensors();
  }

 private:
  const std::string& path() const { return result_.path(); }

  absl::Status ReadHeader() {
    QUIRE_ASSIGN_OR_RETURN(const auto magic, cursor_.ReadAs<std::uint32_t>("the magic number"));
    if (magic != 0x46554747) {  // "GGUF"
      return InvalidArgument("{}: not a GGUF file (it starts with {:#010x}, not \"GGUF\")", path(),
                             magic);
    }
    QUIRE_ASSIGN_OR_RETURN(const auto version, cursor_.ReadAs<std::uint32_t>("the version"));
    if (version != 2 && version != 3) {
      return Unimplemented("{}: GGUF version {} is not supported (2 and 3 are){}", path(), version,
                           version >= 1 << 24 ? "; the file seems to be big-endian" : "");
    }
    QUIRE_ASSIGN_OR_RETURN(num_tensors_, cursor_.ReadAs<std::uint64_t>("the number of tensors"));
    QUIRE_ASSIGN_OR_RETURN(num_pairs_, cursor_.ReadAs<std::uint64_t>("the number of keys"));
    QUIRE_RETURN_IF_ERROR(CheckCount("tensors", num_tensors_, kMinTensorBytes));
    return CheckCount("metadata keys", num_pairs_, kMinPairBytes);
  }

  // A count can be no larger than what the rest of the file could hold.
  absl::Status CheckCount(std::string_view what, std::uint64_t count, std::uint64_t min_bytes) {
    if (count <= cursor_.remaining() / min_bytes) return absl::OkStatus();
    return InvalidArgument("{}: claims {} {}, but only {} bytes follow offset {}", path(), count,
                           what, cursor_.remaining(), cursor_.position());
  }

  absl::Status ReadPair() {
    QUIRE_ASSIGN_OR_RETURN(auto key, cursor_.ReadString("a metadata key"));
    const std::string what = fmt::format("metadata key {}", key);
    QUIRE_ASSIGN_OR_RETURN(const auto type, cursor_.ReadAs<std::uint32_t>(what));
    QUIRE_ASSIGN_OR_RETURN(auto value, ReadValue(type, what));
    if (!result_.metadata_.try_emplace(std::move(key), std::move(value)).second) {
      return InvalidArgument("{}: {} appears twice", path(), what);
    }
    return absl::OkStatus();
  }

  template <class T>
  absl::StatusOr<std::int64_t> ReadInteger(const std::string& what) {
    QUIRE_ASSIGN_OR_RETURN(const T value, cursor_.ReadAs<T>(what));
    if (!std::in_range<std::int64_t>(value)) {
      return InvalidArgument("{}: {} is {}, beyond the range of int64", path(), what, value);
    }
    return static_cast<std::int64_t>(value);
  }

  absl::StatusOr<GgufValue> ReadValue(std::uint32_t type, const std::string& what) {
    if (type == kArray) return ReadArray(what);
    if (type == kString) return cursor_.ReadString(what);
    if (type == kBool) {
      QUIRE_ASSIGN_OR_RETURN(const auto value, cursor_.ReadAs<std::uint8_t>(what));
      if (value > 1) return InvalidArgument("{}: {}: a boolean holds {}", path(), what, value);
      return GgufValue(value == 1);
    }
    if (type == kFloat32 || type == kFloat64) return ReadReal(type, what);
    return ReadIntegerOf(type, what);
  }

  absl::StatusOr<double> ReadReal(std::uint32_t type, const std::string& what) {
    if (type == kFloat64) return cursor_.ReadAs<double>(what);
    QUIRE_ASSIGN_OR_RETURN(const auto value, cursor_.ReadAs<float>(what));
    return static_cast<double>(value);
  }

  absl::StatusOr<std::int64_t> ReadIntegerOf(std::uint32_t type, const std::string& what) {
    switch (type) {
      case kUint8:
        return ReadInteger<std::uint8_t>(what);
      case kInt8:
        return ReadInteger<std::int8_t>(what);
      case kUint16:
        return ReadInteger<std::uint16_t>(what);
      case kInt16:
        return ReadInteger<std::int16_t>(what);
      case kUint32:
        return ReadInteger<std::uint32_t>(what);
      case kInt32:
        return ReadInteger<std::int32_t>(what);
      case kUint64:
        return ReadInteger<std::uint64_t>(what);
      case kInt64:
        return ReadInteger<std::int64_t>(what);
      default:
        return InvalidArgument("{}: {} has the unknown value type {}", path(), what, type);
    }
  }

  absl::StatusOr<GgufValue> ReadArray(const std::string& what) {
    QUIRE_ASSIGN_OR_RETURN(const auto type, cursor_.ReadAs<std::uint32_t>(what));
    QUIRE_ASSIGN_OR_RETURN(const auto count, cursor_.ReadAs<std::uint64_t>(what));
    if (type >= kMinValueBytes.size() || type == kArray) {
      return InvalidArgument("{}: {} is an array of the unsupported type {}", path(), what, type);
    }
    if (count > kMaxArrayElements || count > cursor_.remaining() / kMinValueBytes[type]) {
      return InvalidArgument(
          "{}: {} claims an array of {} elements; {} bytes of the file are left and at most {} "
          "elements are accepted",
          path(), what, count, cursor_.remaining(), kMaxArrayElements);
    }
    if (type == kString) {
      return ReadElements<std::string>(count, [&] { return cursor_.ReadString(what); });
    }
    if (type == kFloat32 || type == kFloat64) {
      return ReadElements<double>(count, [&] { return ReadReal(type, what); });
    }
    const std::uint32_t integer_type = type == kBool ? std::uint32_t{kUint8} : type;
    return ReadElements<std::int64_t>(count, [&] { return ReadIntegerOf(integer_type, what); });
  }

  template <class T, class ReadOne>
  absl::StatusOr<GgufValue> ReadElements(std::uint64_t count, ReadOne read_one) {
    std::vector<T> elements;
    elements.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      QUIRE_ASSIGN_OR_RETURN(auto element, read_one());
      elements.push_back(std::move(element));
    }
    return GgufValue(std::move(elements));
  }

  absl::Status ReadAlignment() {
    QUIRE_ASSIGN_OR_RETURN(const auto alignment, result_.Integer("general.alignment"));
    if (!alignment.has_value()) return absl::OkStatus();
    const auto value = static_cast<std::uint64_t>(*alignment);
    if (*alignment < 1 || value > kMaxAlignment || !std::has_single_bit(value)) {
      return InvalidArgument("{}: general.alignment must be a power of two in [1, {}], got {}",
                             path(), kMaxAlignment, *alignment);
    }
    alignment_ = value;
    return absl::OkStatus();
  }

  absl::Status ReadTensor() {
    StoredTensor tensor;
    QUIRE_ASSIGN_OR_RETURN(tensor.name, cursor_.ReadString("a tensor's name"));
    const std::string what = fmt::format("tensor {}", tensor.name);
    if (!names_.insert(tensor.name).second) {
      return InvalidArgument("{}: {} appears twice", path(), what);
    }
    QUIRE_ASSIGN_OR_RETURN(const auto num_dimensions, cursor_.ReadAs<std::uint32_t>(what));
    if (num_dimensions < 1 || num_dimensions > 4) {
      return InvalidArgument("{}: {} has {} dimensions, not 1 to 4", path(), what, num_dimensions);
    }
    tensor.shape.resize(num_dimensions);
    // The file lists the innermost dimension first.
    for (auto it = tensor.shape.rbegin(); it != tensor.shape.rend(); ++it) {
      QUIRE_ASSIGN_OR_RETURN(const auto dimension, cursor_.ReadAs<std::uint64_t>(what));
      *it = static_cast<std::int64_t>(dimension);  // Above 2^63: negative, refused below.
    }
    QUIRE_ASSIGN_OR_RETURN(const auto ggml_type, cursor_.ReadAs<std::uint32_t>(what));
    QUIRE_ASSIGN_OR_RETURN(tensor.offset, cursor_.ReadAs<std::uint64_t>(what));
    QUIRE_RETURN_IF_ERROR(SetTypeAndBytes(ggml_type, tensor));
    tensor.file = result_.file_;
    result_.tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status SetTypeAndBytes(std::uint32_t ggml_type, StoredTensor& tensor) {
    const auto type = TensorTypeOf(ggml_type);
    if (!type.has_value()) {
      const bool known = ggml_type < kGgmlTypeNames.size() && !kGgmlTypeNames[ggml_type].empty();
      return Unimplemented(
          "{}: tensor {} has type {}, which is not supported (F32, F16, BF16, Q8_0, Q4_0 and Q4_1 "
          "are)",
          path(), tensor.name,
          known ? std::string(kGgmlTypeNames[ggml_type]) : fmt::format("{} (unknown)", ggml_type));
    }
    tensor.type = *type;
    const auto elements = CheckedElements(tensor.shape);
    if (!elements.has_value()) {
      return InvalidArgument("{}: tensor {} has the impossible shape {}", path(), tensor.name,
                             ShapeString(tensor.shape));
    }
    const std::int64_t block = TensorBlockElements(*type);
    if (tensor.shape.back() % block != 0) {
      return InvalidArgument(
          "{}: tensor {} of type {} has rows of {} elements, not a multiple of {}", path(),
          tensor.name, TensorTypeName(*type), tensor.shape.back(), block);
    }
    // Elements are at most 2^62; bytes only need to be right when they fit the file.
    if (static_cast<std::uint64_t>(*elements) > result_.file_->size() * 2) {
      return InvalidArgument("{}: tensor {} {} cannot fit into a file of {} bytes", path(),
                             tensor.name, ShapeString(tensor.shape), result_.file_->size());
    }
    tensor.bytes = *elements / block * TensorBlockBytes(*type);
    return absl::OkStatus();
  }

  // Makes offsets absolute and checks that the tensors follow each other without holes or overlap,
  // each at the next aligned offset, all inside the file.
  absl::Status PlaceTensors() {
    const std::uint64_t data_begin = AlignUp(cursor_.position(), alignment_);
    std::vector<StoredTensor*> by_offset;
    for (StoredTensor& tensor : result_.tensors_) by_offset.push_back(&tensor);
    std::stable_sort(by_offset.begin(), by_offset.end(),
                     [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (const StoredTensor& tensor : result_.tensors_) {
      const std::uint64_t data_bytes =
          result_.file_->size() - std::min<std::uint64_t>(data_begin, result_.file_->size());
      const auto bytes = static_cast<std::uint64_t>(tensor.bytes);
      if (tensor.offset > data_bytes || bytes > data_bytes - tensor.offset) {
        return absl::OutOfRangeError(
            fmt::format("{}: tensor {} needs {} bytes at data offset {}, but the file ends at {} "
                        "(is it truncated?)",
                        path(), tensor.name, bytes, tensor.offset, data_bytes));
      }
    }
    std::uint64_t expected = 0;
    for (StoredTensor* tensor : by_offset) {
      if (tensor->offset != expected) {
        return InvalidArgument(
            "{}: tensor {} lies at data offset {}, but the one before it ends so that the next is "
            "at {} (overlap or hole)",
            path(), tensor->name, tensor->offset, expected);
      }
      tensor->offset += data_begin;
      expected = AlignUp(expected + static_cast<std::uint64_t>(tensor->bytes), alignment_);
    }
    return absl::OkStatus();
  }

  GgufFile& result_;
  Cursor cursor_;
  std::uint64_t num_tensors_ = 0, num_pairs_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
  std::set<std::string> names_;
};

absl::StatusOr<GgufFile> GgufFile::Parse(std::shared_ptr<const File> file) {
  GgufFile result;
  result.file_ = std::move(file);
  QUIRE_RETURN_IF_ERROR(Parser(result).Run());
  return result;
}

template <class T>
absl::StatusOr<std::optional<T>> GgufFile::Get(std::string_view key, std::string_view kind) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::optional<T>();
  if (const T* value = std::get_if<T>(&found->second)) return std::optional<T>(*value);
  return InvalidArgument("{}: {} is not {}", path(), key, kind);
}

absl::StatusOr<std::optional<std::int64_t>> GgufFile::Integer(std::string_view key) const {
  return Get<std::int64_t>(key, "an integer");
}

absl::StatusOr<std::optional<double>> GgufFile::Number(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end()) {
    if (const auto* integer = std::get_if<std::int64_t>(&found->second)) {
      return std::optional<double>(static_cast<double>(*integer));
    }
  }
  return Get<double>(key, "a number");
}

absl::StatusOr<std::optional<bool>> GgufFile::Boolean(std::string_view key) const {
  return Get<bool>(key, "a boolean");
}

absl::StatusOr<std::optional<std::string>> GgufFile::Text(std::string_view key) const {
  return Get<std::string>(key, "a string");
}

absl::StatusOr<std::optional<std::vector<std::int64_t>>> GgufFile::Integers(
    std::string_view key) const {
  return Get<std::vector<std::int64_t>>(key, "an array of integers");
}

absl::StatusOr<std::optional<std::vector<std::string>>> GgufFile::Texts(
    std::string_view key) const {
  return Get<std::vector<std::string>>(key, "an array of strings");
}

}  // namespace quire::engine::model
