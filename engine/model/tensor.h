// Tensors as model files store them: element types, exact conversion to f32, and the
// kernels::MatrixSource over a tensor's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/file.h"
#include "engine/model/model.h"
#include "kernels/weights.h"

namespace quire::engine::model {

// The element types that are read. Formulas of the group types (ggml-quants.h; d and m are F16):
// Q8_0: d, then 32 signed codes, weight = d * code. Q4_0: d, then 16 bytes, weight = d * (nibble -
// 8). Q4_1: d, m, then 16 bytes, weight = d * nibble + m. Byte i holds value i in its low and
// value i + 16 in its high nibble.
enum class TensorType { kF32, kF16, kBf16, kQ8_0, kQ4_0, kQ4_1 };

std::string_view TensorTypeName(TensorType type);
// Elements that are stored together (1 or 32), and the bytes they take.
std::int64_t TensorBlockElements(TensorType type);
std::int64_t TensorBlockBytes(TensorType type);

// Where a tensor lies. Readers make these only after checking that the bytes are inside the file
// and agree with shape and type.
struct StoredTensor {
  std::string name;  // As the file calls it.
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;  // Outermost first; every dimension >= 1.
  std::shared_ptr<const File> file;
  std::uint64_t offset = 0;
  std::int64_t bytes = 0;

  std::int64_t elements() const;
  TensorInfo info() const;
};

// "[49152, 576]"
std::string ShapeString(std::span<const std::int64_t> shape);

// The product of `shape`, or nullopt when a dimension is below 1 or the product exceeds 2^62.
std::optional<std::int64_t> CheckedElements(std::span<const std::int64_t> shape);

// Copies the tensor's bytes out of the file; the matrix lives on its own. REQUIRES: two dimensions,
// the last a multiple of TensorBlockElements.
absl::StatusOr<std::unique_ptr<kernels::MatrixSource>> ReadMatrix(const StoredTensor& tensor);
// All elements as f32. REQUIRES: a float type.
absl::StatusOr<std::vector<float>> ReadVector(const StoredTensor& tensor);

}  // namespace quire::engine::model
