#include "engine/model/tensor.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/math.h"

namespace quire::engine::model {
namespace {

constexpr std::int64_t kGroup = 32;

std::uint16_t LoadU16(const std::byte* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Codes, scale and offset of one group of 32.
void ReadGroup(TensorType type, const std::byte* block, std::int8_t* codes, float& scale,
               float& offset) {
  scale = kernels::F16ToF32(LoadU16(block));
  if (type == TensorType::kQ8_0) {
    offset = 0;
    std::memcpy(codes, block + 2, kGroup);
    return;
  }
  const bool has_minimum = type == TensorType::kQ4_1;
  // 8 * scale is exact: a power of two times 11 significant bits.
  offset = has_minimum ? kernels::F16ToF32(LoadU16(block + 2)) : -8.0F * scale;
  const std::byte* nibbles = block + (has_minimum ? 4 : 2);
  for (int i = 0; i < kGroup / 2; ++i) {
    const auto pair = std::to_integer<unsigned>(nibbles[i]);
    codes[i] = static_cast<std::int8_t>(pair & 15U);
    codes[i + kGroup / 2] = static_cast<std::int8_t>(pair >> 4U);
  }
}

void ConvertFloats(TensorType type, const std::byte* from, std::span<float> out) {
  switch (type) {
    case TensorType::kF32:
      std::memcpy(out.data(), from, out.size_bytes());
      return;
    case TensorType::kF16:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = kernels::F16ToF32(LoadU16(from + 2 * i));
      return;
    case TensorType::kBf16:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = kernels::Bf16ToF32(LoadU16(from + 2 * i));
      return;
    case TensorType::kQ8_0:
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
      break;
  }
  QUIRE_CHECK(false) << "not a float type";
}

// The bytes of a whole tensor. Not a vector: it would write zeros first.
absl::StatusOr<std::unique_ptr<std::byte[]>> ReadBytes(const StoredTensor& tensor) {
  const auto size = static_cast<std::size_t>(tensor.bytes);
  std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
  if (bytes == nullptr) {
    return ResourceExhausted("{}: tensor {}: cannot allocate {} bytes", tensor.file->path(),
                             tensor.name, size);
  }
  QUIRE_RETURN_IF_ERROR(tensor.file->ReadAt(tensor.offset, {bytes.get(), size},
                                            fmt::format("tensor {}", tensor.name)));
  return bytes;
}

class TensorMatrix final : public kernels::MatrixSource {
 public:
  TensorMatrix(const StoredTensor& tensor, std::unique_ptr<std::byte[]> bytes)
      : type_(tensor.type),
        rows_(tensor.shape[0]),
        cols_(tensor.shape[1]),
        row_bytes_(cols_ / TensorBlockElements(type_) * TensorBlockBytes(type_)),
        bytes_(std::move(bytes)) {}

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  Encoding encoding() const override {
    switch (type_) {
      case TensorType::kQ8_0:
        return Encoding::kInt8Group32;
      case TensorType::kQ4_0:
      case TensorType::kQ4_1:
        return Encoding::kInt4Group32;
      default:
        return Encoding::kFloat;
    }
  }

  void ReadRow(std::int64_t row, std::span<float> out) const override {
    QUIRE_DCHECK(row >= 0 && row < rows_ && std::ssize(out) == cols_);
    const std::byte* from = bytes_.get() + row * row_bytes_;
    if (encoding() == Encoding::kFloat) return ConvertFloats(type_, from, out);
    std::int8_t codes[kGroup];
    float scale, offset;
    for (std::int64_t begin = 0; begin < cols_; begin += kGroup) {
      ReadGroup(type_, from + begin / kGroup * TensorBlockBytes(type_), codes, scale, offset);
      for (int i = 0; i < kGroup; ++i) {
        out[static_cast<std::size_t>(begin + i)] = scale * static_cast<float>(codes[i]) + offset;
      }
    }
  }

  void ReadGroups(std::int64_t row, std::span<std::int8_t> codes, std::span<float> scales,
                  std::span<float> offsets) const override {
    QUIRE_DCHECK(encoding() != Encoding::kFloat);
    QUIRE_DCHECK(row >= 0 && row < rows_ && std::ssize(codes) == cols_);
    const std::byte* from = bytes_.get() + row * row_bytes_;
    for (std::size_t g = 0; g < scales.size(); ++g) {
      ReadGroup(type_, from + static_cast<std::int64_t>(g) * TensorBlockBytes(type_),
                codes.data() + g * kGroup, scales[g], offsets[g]);
    }
  }

 private:
  const TensorType type_;
  const std::int64_t rows_, cols_, row_bytes_;
  const std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace

std::string_view TensorTypeName(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return "F32";
    case TensorType::kF16:
      return "F16";
    case TensorType::kBf16:
      return "BF16";
    case TensorType::kQ8_0:
      return "Q8_0";
    case TensorType::kQ4_0:
      return "Q4_0";
    case TensorType::kQ4_1:
      return "Q4_1";
  }
  return "unknown";
}

std::int64_t TensorBlockElements(TensorType type) {
  switch (type) {
    case TensorType::kQ8_0:
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
      return kGroup;
    default:
      return 1;
  }
}

std::int64_t TensorBlockBytes(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return 4;
    case TensorType::kF16:
    case TensorType::kBf16:
      return 2;
    case TensorType::kQ8_0:
      return 2 + 32;
    case TensorType::kQ4_0:
      return 2 + 16;
    case TensorType::kQ4_1:
      return 2 + 2 + 16;
  }
  return 0;
}

std::int64_t StoredTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) product *= dimension;
  return product;
}

TensorInfo StoredTensor::info() const {
  return {.name = name, .type = std::string(TensorTypeName(type)), .shape = shape, .bytes = bytes};
}

std::string ShapeString(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::optional<std::int64_t> CheckedElements(std::span<const std::int64_t> shape) {
  constexpr std::int64_t kMax = std::int64_t{1} << 62;
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 1 || product > kMax / dimension) return std::nullopt;
    product *= dimension;
  }
  return product;
}

absl::StatusOr<std::unique_ptr<kernels::MatrixSource>> ReadMatrix(const StoredTensor& tensor) {
  QUIRE_CHECK(tensor.shape.size() == 2 && tensor.shape[1] % TensorBlockElements(tensor.type) == 0);
  QUIRE_ASSIGN_OR_RETURN(auto bytes, ReadBytes(tensor));
  return std::make_unique<TensorMatrix>(tensor, std::move(bytes));
}

absl::StatusOr<std::vector<float>> ReadVector(const StoredTensor& tensor) {
  QUIRE_ASSIGN_OR_RETURN(const auto bytes, ReadBytes(tensor));
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  ConvertFloats(tensor.type, bytes.get(), values);
  return values;
}

}  // namespace quire::engine::model
