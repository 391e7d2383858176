// How weights lie in memory on the CPU: one layout per format, shared by all instruction set levels
// and by any number of rows.
//
// Outputs (columns of x W^T) are taken 32 at a time: a column group. A group is contiguous and
// walks along the inputs k in units of 128 bytes, [2 panels][16 columns][4 bytes]; the 4 bytes of a
// column hold
//   f32      1 input
//   bf16     2 inputs, the even one in the low half
//   int8     4 inputs, a byte each
//   int4     8 inputs: byte b holds input b in its low nibble and input b + 4 in its high nibble.
// The integer formats come in blocks of 32 inputs: [32] f16 scales, [32] f16 offsets, then the
// units. An int8 matrix whose offsets are all zero leaves them out. Columns and inputs beyond the
// matrix are zero. kPackedSlack readable bytes follow a matrix.
//
// Only constants: files compiled for one instruction set level include this header.
#pragma once

namespace quire::kernels::cpu {

inline constexpr int kGroupColumns = 32;
inline constexpr int kUnitBytes = kGroupColumns * 4;
inline constexpr int kBlockInputs = 32;  // Inputs of one scale.
inline constexpr int kScalesBytes = kGroupColumns * 2;
inline constexpr int kPackedSlack = 64;

// The packed forms; the integer ones differ in whether a block has offsets.
enum class PackedFormat { kF32, kBf16, kInt8, kInt8Offset, kInt4Offset };
inline constexpr int kNumPackedFormats = 5;

// Inputs in a unit.
constexpr int UnitInputs(PackedFormat format) {
  switch (format) {
    case PackedFormat::kF32:
      return 1;
    case PackedFormat::kBf16:
      return 2;
    case PackedFormat::kInt8:
    case PackedFormat::kInt8Offset:
      return 4;
    case PackedFormat::kInt4Offset:
      return 8;
  }
  return 0;
}

// Bytes before the units of a block; 0 for formats without blocks.
constexpr int BlockHeaderBytes(PackedFormat format) {
  switch (format) {
    case PackedFormat::kF32:
    case PackedFormat::kBf16:
      return 0;
    case PackedFormat::kInt8:
      return kScalesBytes;
    case PackedFormat::kInt8Offset:
    case PackedFormat::kInt4Offset:
      return 2 * kScalesBytes;
  }
  return 0;
}

// Bytes of kBlockInputs inputs of a column group, header included.
constexpr int BlockBytes(PackedFormat format) {
  return BlockHeaderBytes(format) + kBlockInputs / UnitInputs(format) * kUnitBytes;
}

}  // namespace quire::kernels::cpu
