// Where a matrix comes from, and in what form a backend keeps it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace quire::kernels {

// How a backend stores a packed matrix. Group formats keep, for every 32 inputs of a row, integer
// codes, a scale and an offset: weight = scale * code + offset, exactly as the file says, so they
// give the same weights as dequantising to f32 would, in fewer bytes.
enum class WeightFormat { kF32, kBf16, kInt8Group32, kInt4Group32 };

std::string_view WeightFormatName(WeightFormat format);  // "f32", "bf16", "int8_g32", "int4_g32"

// A matrix [rows = outputs, cols = inputs] in a model file. Implemented by engine/model, which
// knows the file formats; read by Backend::PackLinear.
//
// Thread: the Read methods are const and may be called from several threads at once.
class MatrixSource {
 public:
  // What the file holds: kFloat (F32, F16, BF16) or integer groups of 32 along a row.
  enum class Encoding { kFloat, kInt8Group32, kInt4Group32 };

  virtual ~MatrixSource() = default;
  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  virtual Encoding encoding() const = 0;
  // Row `row`, converted or dequantised to f32 exactly. out: [cols].
  virtual void ReadRow(std::int64_t row, std::span<float> out) const = 0;
  // REQUIRES: encoding() is a group encoding. codes: [cols]; scales, offsets: [cols / 32].
  // Int4 codes are in [0, 15], int8 codes in [-128, 127].
  virtual void ReadGroups(std::int64_t row, std::span<std::int8_t> codes, std::span<float> scales,
                          std::span<float> offsets) const = 0;
};

}  // namespace quire::kernels
