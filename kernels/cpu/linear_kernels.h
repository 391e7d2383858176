// The matrix kernels of one instruction set level. Included by isa_*.cc only.
//
// Few rows: weights are dequantised in registers, once per weight and call. Many rows: a block of
// inputs of one column group is dequantised into scratch that stays in the first-level cache and
// meets all rows; sums pass from block to block as f32. Both ways add the same products in the same
// order, so a row's result does not depend on how many others there are.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/packed_layout.h"
#include "kernels/cpu/vec.h"

namespace quire::kernels::cpu::QUIRE_ISA_NAMESPACE {

inline constexpr int kGroupVectors = kGroupColumns / kLanes;
inline constexpr int kVectorBytes = kLanes * 4;  // Of a unit.

// Register blocks, rows x vectors. 14 x 2 zmm leave room for the weights and a broadcast; so do
// 6 x 2 ymm.
#if defined(__AVX512F__)
inline constexpr int kMaxPanelRows = 14;
inline constexpr int kPanelVectors = 2;
inline constexpr int kMaxDirectRows = 8;
#else
inline constexpr int kMaxPanelRows = 6;
inline constexpr int kPanelVectors = 2;
inline constexpr int kMaxDirectRows = 4;
#endif
inline constexpr int kPanelInputs = 128;  // 16 KiB of scratch.

template <int... kIndices>
struct Indices {};

// Keeps a broadcast in a register: the compiler would fold the load into every use.
QUIRE_INLINE VecF InRegister(VecF x) {
  asm("" : "+v"(x));
  return x;
}

// --- Formats ----------------------------------------------------------------------------------
// Weight<k>(unit, columns): input k of a unit, for kLanes columns; `unit` points at the first
// column's bytes. Columns holds what those columns share in a block.

struct F32Weights {
  static constexpr PackedFormat kFormat = PackedFormat::kF32;
  using Unit = Indices<0>;
  struct Columns {};
  static QUIRE_INLINE Columns Header(const std::byte* /*block*/, int /*vector*/) { return {}; }
  template <int k>
  static QUIRE_INLINE VecF Weight(const std::byte* unit, const Columns& /*columns*/) {
    return Load(reinterpret_cast<const float*>(unit));
  }
};

struct Bf16Weights {
  static constexpr PackedFormat kFormat = PackedFormat::kBf16;
  using Unit = Indices<0, 1>;
  struct Columns {};
  static QUIRE_INLINE Columns Header(const std::byte* /*block*/, int /*vector*/) { return {}; }
  template <int k>
  static QUIRE_INLINE VecF Weight(const std::byte* unit, const Columns& /*columns*/) {
    const VecI pair = LoadI(unit);
    return AsFloat(k == 0 ? ShiftLeft<16>(pair)
                          : And(pair, SetI(static_cast<std::int32_t>(0xffff0000))));
  }
};

// Code k is moved to the top byte of its 32-bit lane by loading from k - 3 bytes on, so that it
// becomes code * 2^24 with its sign; the scale makes up for the factor, exactly.
template <bool kOffsets>
struct Int8Weights {
  static constexpr PackedFormat kFormat =
      kOffsets ? PackedFormat::kInt8Offset : PackedFormat::kInt8;
  using Unit = Indices<0, 1, 2, 3>;
  struct Columns {
    VecF scale;
    VecF offset;
  };
  static QUIRE_INLINE Columns Header(const std::byte* block, int vector) {
    const std::byte* scales = block + vector * kLanes * 2;
    return {Mul(LoadF16(scales), Set(0x1p-24F)),
            kOffsets ? LoadF16(scales + kScalesBytes) : Zero()};
  }
  template <int k>
  static QUIRE_INLINE VecF Weight(const std::byte* unit, const Columns& columns) {
    const VecI code = And(LoadI(unit + (k - 3)), SetI(static_cast<std::int32_t>(0xff000000)));
    return kOffsets ? Fma(columns.scale, ToFloat(code), columns.offset)
                    : Mul(columns.scale, ToFloat(code));
  }
};

// Nibble k is moved to the low bits of its lane by loading from its byte on (and a shift for the
// high ones); what lies above it is ignored.
struct Int4Weights {
  static constexpr PackedFormat kFormat = PackedFormat::kInt4Offset;
  using Unit = Indices<0, 1, 2, 3, 4, 5, 6, 7>;
  struct Columns {
    VecF scale;
    VecF offset;
  };
  static QUIRE_INLINE Columns Header(const std::byte* block, int vector) {
    const std::byte* scales = block + vector * kLanes * 2;
    return {LoadF16(scales), LoadF16(scales + kScalesBytes)};
  }
  static QUIRE_INLINE VecF LowNibbleToFloat(VecI x) {
#if defined(__AVX512F__)
    return _mm512_permutexvar_ps(
        x, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
#else
    return ToFloat(And(x, SetI(15)));
#endif
  }
  template <int k>
  static QUIRE_INLINE VecF Weight(const std::byte* unit, const Columns& columns) {
    const VecI bytes = LoadI(unit + k % 4);
    const VecI nibble = k < 4 ? bytes : ShiftRight<4>(bytes);
    return Fma(columns.scale, LowNibbleToFloat(nibble), columns.offset);
  }
};

// --- Few rows ---------------------------------------------------------------------------------

// Where a block of sums goes.
struct Target {
  float* out;
  std::int64_t stride;
  bool add;
};

template <int kRows, int kVectors>
QUIRE_INLINE void StoreSums(const VecF (&sum)[kRows][kVectors], Target target) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* out = target.out + r * target.stride;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Store(out + v * kLanes, target.add ? Add(Load(out + v * kLanes), sum[r][v]) : sum[r][v]);
    }
  }
}

// sum[r][v] += x[r, k] * weight of input k of a unit.
template <class Format, int kRows, int kVectors, int k>
QUIRE_INLINE void AddInput(const float* x, std::int64_t x_stride, const std::byte* unit,
                           const typename Format::Columns (&columns)[kVectors],
                           VecF (&sum)[kRows][kVectors]) {
  VecF weight[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    weight[v] = Format::template Weight<k>(unit + v * kVectorBytes, columns[v]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const VecF value = InRegister(Set(x[r * x_stride + k]));
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(value, weight[v], sum[r][v]);
  }
}

template <class Format, int kRows, int kVectors, int... ks>
QUIRE_INLINE void AddUnit(const float* x, std::int64_t x_stride, const std::byte* unit,
                          const typename Format::Columns (&columns)[kVectors],
                          VecF (&sum)[kRows][kVectors], Indices<ks...> /*inputs*/) {
  (AddInput<Format, kRows, kVectors, ks>(x, x_stride, unit, columns, sum), ...);
}

// kRows rows x kVectors vectors of columns, from vector `first_vector` of the group on.
template <class Format, int kRows, int kVectors>
void DirectRows(const float* x, std::int64_t x_stride, std::int32_t inputs, const std::byte* group,
                int first_vector, Target target) {
  using Unit = typename Format::Unit;
  constexpr int kUnitInputs = UnitInputs(Format::kFormat);
  constexpr int kHeader = BlockHeaderBytes(Format::kFormat);
  VecF sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Zero();
  }
  typename Format::Columns columns[kVectors];
  const std::byte* unit = group + first_vector * kVectorBytes;
  if constexpr (kHeader > 0) {
    const std::byte* block = group;
    for (std::int32_t k = 0; k < inputs; k += kBlockInputs) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) columns[v] = Format::Header(block, first_vector + v);
      unit += kHeader;
      for (int i = 0; i < kBlockInputs; i += kUnitInputs) {
        AddUnit<Format, kRows, kVectors>(x + i, x_stride, unit, columns, sum, Unit{});
        unit += kUnitBytes;
      }
      x += kBlockInputs;
      block += BlockBytes(Format::kFormat);
    }
  } else {
    std::int32_t k = 0;
    for (; k + kUnitInputs <= inputs; k += kUnitInputs) {
      AddUnit<Format, kRows, kVectors>(x + k, x_stride, unit, columns, sum, Unit{});
      unit += kUnitBytes;
    }
    if (k < inputs) {  // An odd number of bf16 inputs.
      AddUnit<Format, kRows, kVectors>(x + k, x_stride, unit, columns, sum, Indices<0>{});
    }
  }
  StoreSums(sum, target);
}

// All columns of a group, 1 <= rows <= kMaxRows.
template <class Format, int kMaxRows>
void DirectGroup(const LinearArgs& args, const std::byte* group, Target target) {
  if constexpr (kMaxRows > 1) {
    if (args.rows < kMaxRows) return DirectGroup<Format, kMaxRows - 1>(args, group, target);
  }
  // The fewer rows, the more columns at a time: enough independent sums to hide the latency of FMA.
  constexpr int kVectors = kMaxRows <= 2 ? kGroupVectors : kPanelVectors;
  for (int v = 0; v < kGroupVectors; v += kVectors) {
    DirectRows<Format, kMaxRows, kVectors>(args.x, args.x_stride, args.inputs, group, v,
                                           {target.out + v * kLanes, target.stride, target.add});
  }
}

// --- Many rows --------------------------------------------------------------------------------

template <class Format, int... ks>
QUIRE_INLINE void DequantiseUnit(const std::byte* unit, const typename Format::Columns& columns,
                                 float* out, Indices<ks...> /*inputs*/) {
  (Store(out + ks * kGroupColumns, Format::template Weight<ks>(unit, columns)), ...);
}

// Writes inputs [first, first + count) of a group as f32, [count][32 columns]. `first` is a
// multiple of kPanelInputs.
template <class Format>
void DequantisePanel(const std::byte* group, std::int32_t first, std::int32_t count, float* panel) {
  constexpr int kUnitInputs = UnitInputs(Format::kFormat);
  constexpr int kHeader = BlockHeaderBytes(Format::kFormat);
  using Unit = typename Format::Unit;
  for (std::int32_t k = 0; k < count; k += kBlockInputs) {
    const std::byte* block = group + (first + k) / kBlockInputs * BlockBytes(Format::kFormat);
    const std::int32_t block_inputs = count - k < kBlockInputs ? count - k : kBlockInputs;
    for (int v = 0; v < kGroupVectors; ++v) {
      const auto columns = Format::Header(block, v);
      const std::byte* unit = block + kHeader + v * kVectorBytes;
      float* out = panel + k * kGroupColumns + v * kLanes;
      // A last unit that is not full has zeros beyond the matrix; the panel has room for them.
      for (int i = 0; i < block_inputs; i += kUnitInputs) {
        DequantiseUnit<Format>(unit, columns, out + i * kGroupColumns, Unit{});
        unit += kUnitBytes;
      }
    }
  }
}

// sums = carry + x * panel for kRows rows and kPanelVectors vectors; carry null: zero.
// panel: [count][32 columns], from the wanted column on. carry: [kRows][32].
template <int kRows>
void PanelRows(const float* x, std::int64_t x_stride, const float* panel, std::int32_t count,
               const float* carry, Target target) {
  VecF sum[kRows][kPanelVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) {
      sum[r][v] = carry == nullptr ? Zero() : Load(carry + r * kGroupColumns + v * kLanes);
    }
  }
  const F32Weights::Columns columns[kPanelVectors] = {};
#pragma GCC unroll 2
  for (std::int32_t k = 0; k < count; ++k) {
    AddInput<F32Weights, kRows, kPanelVectors, 0>(
        x + k, x_stride, reinterpret_cast<const std::byte*>(panel + k * kGroupColumns), columns,
        sum);
  }
  StoreSums(sum, target);
}

// All columns of the panel, 1 <= rows <= kMaxRows.
template <int kMaxRows>
void PanelBlock(std::int32_t rows, const float* x, std::int64_t x_stride, const float* panel,
                std::int32_t count, const float* carry, Target target) {
  if constexpr (kMaxRows > 1) {
    if (rows < kMaxRows) {
      return PanelBlock<kMaxRows - 1>(rows, x, x_stride, panel, count, carry, target);
    }
  }
  for (int c = 0; c < kGroupColumns; c += kPanelVectors * kLanes) {
    PanelRows<kMaxRows>(x, x_stride, panel + c, count, carry == nullptr ? nullptr : carry + c,
                        {target.out + c, target.stride, target.add});
  }
}

template <class Format>
void BlockedGroup(const LinearArgs& args, const std::byte* group, Target target,
                  LinearScratch& scratch) {
  // Row blocks of equal size, as far as possible.
  const std::int32_t num_blocks = (args.rows + kMaxPanelRows - 1) / kMaxPanelRows;
  for (std::int32_t k = 0; k < args.inputs; k += kPanelInputs) {
    const std::int32_t count = args.inputs - k < kPanelInputs ? args.inputs - k : kPanelInputs;
    const bool last = k + count == args.inputs;
    const float* panel = scratch.panel;
    if constexpr (Format::kFormat == PackedFormat::kF32) {
      panel = reinterpret_cast<const float*>(group) + k * kGroupColumns;
    } else {
      DequantisePanel<Format>(group, k, count, scratch.panel);
    }
    std::int32_t row = 0;
    for (std::int32_t b = 0; b < num_blocks; ++b) {
      const std::int32_t end = args.rows * (b + 1) / num_blocks;
      float* sums = scratch.sums + row * kGroupColumns;
      const Target to = last ? Target{target.out + row * target.stride, target.stride, target.add}
                             : Target{sums, kGroupColumns, false};
      PanelBlock<kMaxPanelRows>(end - row, args.x + row * args.x_stride + k, args.x_stride, panel,
                                count, k == 0 ? nullptr : sums, to);
      row = end;
    }
  }
}

// --- Groups -----------------------------------------------------------------------------------

// Runs an incomplete last group into scratch and takes over the columns that exist.
inline void CopyEdge(const LinearArgs& args, std::int32_t columns, const float* edge, float* out) {
  for (std::int32_t r = 0; r < args.rows; ++r) {
    for (std::int32_t c = 0; c < columns; ++c) {
      const float sum = edge[r * kGroupColumns + c];
      float& target = out[r * args.out_stride + c];
      target = args.add ? target + sum : sum;
    }
  }
}

template <class Format>
void LinearGroups(const LinearArgs& args, std::int64_t first, std::int64_t last,
                  LinearScratch& scratch) {
  for (std::int64_t g = first; g < last; ++g) {
    const std::byte* group = args.weights + g * args.group_bytes;
    float* out = args.out + g * kGroupColumns;
    const std::int64_t columns = args.outputs - g * kGroupColumns;
    const bool whole = columns >= kGroupColumns;
    const Target target =
        whole ? Target{out, args.out_stride, args.add} : Target{scratch.edge, kGroupColumns, false};
    if (args.rows <= kMaxDirectRows) {
      DirectGroup<Format, kMaxDirectRows>(args, group, target);
    } else {
      BlockedGroup<Format>(args, group, target, scratch);
    }
    if (!whole) CopyEdge(args, static_cast<std::int32_t>(columns), scratch.edge, out);
  }
}

}  // namespace quire::kernels::cpu::QUIRE_ISA_NAMESPACE
