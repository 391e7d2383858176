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

// Register blocks. 14 rows x 2 zmm leave room for the weights and a broadcast; so do 6 x 2 ymm.
// Up to kMaxDirectRows rows it is cheaper to dequantise weights again for every row block than to
// pass them through scratch. With one or two rows more columns are needed (4 vectors) to have
// enough independent sums to hide the latency of multiply-add.
inline constexpr int kPanelVectors = 2;
inline constexpr int kWideVectors = 4;
inline constexpr int kMaxWideRows = 2;
#if defined(__AVX512F__)
inline constexpr int kMaxPanelRows = 14;
inline constexpr int kMaxDirectRows = 8;
#else
inline constexpr int kMaxPanelRows = 6;
inline constexpr int kMaxDirectRows = 4;
#endif

// Inputs of f32 weights that are worked on at a time: they need no scratch, so what counts is the
// second-level cache (80 KiB) and how often sums are stored.
inline constexpr int kMaxUnpackedInputs = 640;

// How far ahead of their use weights are fetched from memory.
inline constexpr int kPrefetchBytes = 4096;
inline constexpr int kLineBytes = 64;

template <int... kIndices>
struct Indices {};

// Keeps a broadcast in a register: the compiler would fold the load into every use.
QUIRE_INLINE VecF InRegister(VecF x) {
  asm("" : "+v"(x));
  return x;
}

// --- Formats ----------------------------------------------------------------------------------
// Weight<k>(unit, columns): input k of a unit, for kLanes columns; `unit` points at the first
// column's bytes. Columns holds what the inputs of a block have in common, per column.

struct F32Weights {
  static constexpr PackedFormat kFormat = PackedFormat::kF32;
  using Unit = Indices<0>;
  struct Columns {};
  static QUIRE_INLINE Columns Header(const std::byte* /*scales*/) { return {}; }
  template <int k>
  static QUIRE_INLINE VecF Weight(const std::byte* unit, const Columns& /*columns*/) {
    return Load(reinterpret_cast<const float*>(unit));
  }
};

struct Bf16Weights {
  static constexpr PackedFormat kFormat = PackedFormat::kBf16;
  using Unit = Indices<0, 1>;
  struct Columns {};
  static QUIRE_INLINE Columns Header(const std::byte* /*scales*/) { return {}; }
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
  static QUIRE_INLINE Columns Header(const std::byte* scales) {
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
  static QUIRE_INLINE Columns Header(const std::byte* scales) {
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

// Where vector v of a run of vectors has its share of a unit, when the run starts in one group and
// may go on in the next ones.
template <int kBytes>
QUIRE_INLINE std::int64_t VectorOffset(int v, std::int64_t group_bytes) {
  return v / kGroupVectors * group_bytes + v % kGroupVectors * kBytes;
}

// Rows of activations at the current input. A pointer to every fifth row: those between are reached
// by x86 addressing (base + stride * {1, 2, 4}, base + 3 * stride), so that 14 rows need six
// registers. The compiler must not see that the pointers are related, or it undoes this.
template <int kRows>
struct RowPointers {
  static constexpr int kStep = 5;
  static constexpr int kBases = (kRows + kStep - 1) / kStep;

  QUIRE_INLINE RowPointers(const float* x, std::int64_t x_stride) : stride(x_stride) {
#pragma GCC unroll 4
    for (int i = 0; i < kBases; ++i) {
      base[i] = x + i * kStep * x_stride;
      asm("" : "+r"(base[i]));
    }
  }
  QUIRE_INLINE VecF Broadcast(int r, int k) const {
    return InRegister(Set(base[r / kStep][r % kStep * stride + k]));
  }
  QUIRE_INLINE void Advance(int inputs) {
#pragma GCC unroll 4
    for (int i = 0; i < kBases; ++i) base[i] += inputs;
  }

  const float* base[kBases];
  std::int64_t stride;
};

// sum[r][v] += x[r, k] * weight of input k of a unit.
template <class Format, int k, int kRows, int kVectors>
QUIRE_INLINE void AddInput(const RowPointers<kRows>& x, const std::byte* unit,
                           std::int64_t group_bytes,
                           const typename Format::Columns (&columns)[kVectors],
                           VecF (&sum)[kRows][kVectors]) {
  VecF weight[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    weight[v] =
        Format::template Weight<k>(unit + VectorOffset<kVectorBytes>(v, group_bytes), columns[v]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const VecF value = x.Broadcast(r, k);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(value, weight[v], sum[r][v]);
  }
}

// The same for all inputs of a unit.
template <class Format, int kRows, int kVectors, int... ks>
QUIRE_INLINE void AddUnit(const RowPointers<kRows>& x, const std::byte* unit,
                          std::int64_t group_bytes,
                          const typename Format::Columns (&columns)[kVectors],
                          VecF (&sum)[kRows][kVectors], Indices<ks...> /*inputs*/) {
  (AddInput<Format, ks>(x, unit, group_bytes, columns, sum), ...);
}

// Fetches kBytes from `at` on into the first-level cache.
template <int kBytes>
QUIRE_INLINE void Prefetch(const void* at) {
#pragma GCC unroll 16
  for (int i = 0; i < kBytes; i += kLineBytes) {
    _mm_prefetch(static_cast<const char*>(at) + i, _MM_HINT_T0);
  }
}

// kRows rows x kVectors vectors of columns from `first_vector` of `group` on; kVectors beyond
// kGroupVectors lie in the groups that follow.
template <class Format, int kRows, int kVectors>
void DirectRows(const LinearArgs& args, const std::byte* group, int first_vector, Target target) {
  using Unit = typename Format::Unit;
  constexpr int kUnitInputs = UnitInputs(Format::kFormat);
  constexpr int kHeader = BlockHeaderBytes(Format::kFormat);
  constexpr int kGroups = (kVectors + kGroupVectors - 1) / kGroupVectors;
  constexpr int kBytes = BlockBytes(Format::kFormat);
  constexpr int kUnits = kBlockInputs / kUnitInputs;
  const std::int64_t group_bytes = args.group_bytes;
  const std::int32_t inputs = args.inputs;
  RowPointers<kRows> x(args.x, args.x_stride);
  VecF sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Zero();
  }
  typename Format::Columns columns[kVectors];
  const std::byte* block = group;
  std::int32_t k = 0;
  for (; k + kBlockInputs <= inputs; k += kBlockInputs) {
    // Near the end of these groups, what comes next lies behind the last of them.
    const std::byte* ahead = block + kPrefetchBytes;
    if (k + kPrefetchBytes / kBytes * kBlockInputs >= inputs) ahead += (kGroups - 1) * group_bytes;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      columns[v] = Format::Header(block + first_vector * kLanes * 2 +
                                  VectorOffset<kLanes * 2>(v, group_bytes));
    }
    const std::byte* unit = block + kHeader + first_vector * kVectorBytes;
    for (int u = 0; u < kUnits; ++u) {
      for (int g = 0; g < kGroups; ++g) {
        Prefetch<kBytes / kUnits>(ahead + u * (kBytes / kUnits) + g * group_bytes);
      }
      AddUnit<Format>(x, unit, group_bytes, columns, sum, Unit{});
      x.Advance(kUnitInputs);
      unit += kUnitBytes;
    }
    block += kBytes;
  }
  // What remains of formats without blocks, perhaps half a unit of bf16.
  if constexpr (kHeader == 0) {
    const std::byte* unit = block + first_vector * kVectorBytes;
    for (; k + kUnitInputs <= inputs; k += kUnitInputs) {
      AddUnit<Format>(x, unit, group_bytes, columns, sum, Unit{});
      x.Advance(kUnitInputs);
      unit += kUnitBytes;
    }
    if (k < inputs) AddUnit<Format>(x, unit, group_bytes, columns, sum, Indices<0>{});
  }
  StoreSums(sum, target);
}

// All columns of kGroups groups, 1 <= rows <= kMaxRows.
template <class Format, int kMaxRows, int kGroups>
void DirectGroups(const LinearArgs& args, const std::byte* group, Target target) {
  if constexpr (kMaxRows > 1) {
    if (args.rows < kMaxRows) {
      return DirectGroups<Format, kMaxRows - 1, kGroups>(args, group, target);
    }
  }
  constexpr int kAll = kGroups * kGroupVectors;
  constexpr int kWanted = kMaxRows <= kMaxWideRows ? kWideVectors : kPanelVectors;
  constexpr int kVectors = kWanted < kAll ? kWanted : kAll;
  for (int v = 0; v < kAll; v += kVectors) {
    DirectRows<Format, kMaxRows, kVectors>(args, group, v,
                                           {target.out + v * kLanes, target.stride, target.add});
  }
}

// --- Many rows --------------------------------------------------------------------------------

template <class Format, int... ks>
QUIRE_INLINE void DequantiseUnit(const std::byte* unit, const typename Format::Columns& columns,
                                 float* out, Indices<ks...> /*inputs*/) {
  (Store(out + ks * kGroupColumns, Format::template Weight<ks>(unit, columns)), ...);
}

// Writes `count` inputs, packed from `block` on, as f32: panel[count][32 columns].
template <class Format>
void DequantisePanel(const std::byte* block, std::int32_t count, float* panel) {
  constexpr int kUnitInputs = UnitInputs(Format::kFormat);
  constexpr int kHeader = BlockHeaderBytes(Format::kFormat);
  using Unit = typename Format::Unit;
  for (std::int32_t k = 0; k < count; k += kBlockInputs) {
    const std::int32_t block_inputs = count - k < kBlockInputs ? count - k : kBlockInputs;
    for (int v = 0; v < kGroupVectors; ++v) {
      const auto columns = Format::Header(block + v * kLanes * 2);
      const std::byte* unit = block + kHeader + v * kVectorBytes;
      float* out = panel + k * kGroupColumns + v * kLanes;
      // A last unit that is not full has zeros beyond the matrix; the panel has room for them.
      for (int i = 0; i < block_inputs; i += kUnitInputs) {
        DequantiseUnit<Format>(unit, columns, out + i * kGroupColumns, Unit{});
        unit += kUnitBytes;
      }
    }
    block += BlockBytes(Format::kFormat);
  }
}

// Weights to fetch while a panel is worked on: `bytes_per_input` from `at` on with every input.
struct PanelPrefetch {
  const std::byte* at;
  std::int64_t bytes_per_input;
};

// carry + x * panel for kRows rows and kPanelVectors vectors; carry null: zero.
// panel: [count][32 columns], from the wanted column on. carry: [kRows][32].
template <int kRows>
void PanelRows(const float* x, std::int64_t x_stride, const float* panel, std::int32_t count,
               const float* carry, PanelPrefetch prefetch, Target target) {
  VecF sum[kRows][kPanelVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    Prefetch<kPanelVectors * kVectorBytes>(target.out + r * target.stride);
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) {
      sum[r][v] = carry == nullptr ? Zero() : Load(carry + r * kGroupColumns + v * kLanes);
    }
  }
  const auto* ahead = reinterpret_cast<const char*>(prefetch.at);
  RowPointers<kRows> rows(x, x_stride);
  const F32Weights::Columns columns[kPanelVectors] = {};
#pragma GCC unroll 2
  for (std::int32_t k = 0; k < count; ++k) {
    _mm_prefetch(ahead, _MM_HINT_T0);
    ahead += prefetch.bytes_per_input;
    AddInput<F32Weights, 0>(rows, reinterpret_cast<const std::byte*>(panel), 0, columns, sum);
    panel += kGroupColumns;
    rows.Advance(1);
  }
  StoreSums(sum, target);
}

// All columns of the panel, 1 <= rows <= kMaxRows.
template <int kMaxRows>
void PanelBlock(std::int32_t rows, const float* x, std::int64_t x_stride, const float* panel,
                std::int32_t count, const float* carry, PanelPrefetch prefetch, Target target) {
  if constexpr (kMaxRows > 1) {
    if (rows < kMaxRows) {
      return PanelBlock<kMaxRows - 1>(rows, x, x_stride, panel, count, carry, prefetch, target);
    }
  }
  for (int c = 0; c < kGroupColumns; c += kPanelVectors * kLanes) {
    PanelRows<kMaxRows>(x, x_stride, panel + c, count, carry == nullptr ? nullptr : carry + c,
                        prefetch, {target.out + c, target.stride, target.add});
  }
}

inline constexpr std::int32_t CeilDivide(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }

// Bytes of `count` inputs of a group; a multiple of kBlockInputs, or the rest of a group.
template <class Format>
std::int64_t PackedBytes(std::int32_t count) {
  return static_cast<std::int64_t>(count) * BlockBytes(Format::kFormat) / kBlockInputs;
}

template <class Format>
void BlockedGroup(const LinearArgs& args, const std::byte* group, Target target,
                  LinearScratch& scratch) {
  // Blocks of rows and of inputs of equal size, as far as possible.
  constexpr std::int32_t kMaxInputs =
      Format::kFormat == PackedFormat::kF32 ? kMaxUnpackedInputs : LinearScratch::kMaxInputs;
  static_assert(kMaxInputs % kBlockInputs == 0);
  const std::int32_t row_blocks = CeilDivide(args.rows, kMaxPanelRows);
  const std::int32_t input_blocks = CeilDivide(args.inputs, kMaxInputs);
  const std::int32_t block_inputs =
      CeilDivide(CeilDivide(args.inputs, input_blocks), kBlockInputs) * kBlockInputs;
  for (std::int32_t k = 0; k < args.inputs; k += block_inputs) {
    const std::int32_t count = args.inputs - k < block_inputs ? args.inputs - k : block_inputs;
    const bool last = k + count == args.inputs;
    const std::byte* packed = group + PackedBytes<Format>(k);
    const float* panel = scratch.panel;
    if constexpr (Format::kFormat == PackedFormat::kF32) {
      panel = reinterpret_cast<const float*>(packed);
    } else {
      DequantisePanel<Format>(packed, count, scratch.panel);
    }
    // Every row block fetches its part of the weights that follow.
    const std::int64_t bytes = PackedBytes<Format>(count);
    const std::int64_t bytes_per_input = bytes / row_blocks / count + 1;
    std::int32_t row = 0;
    for (std::int32_t b = 0; b < row_blocks; ++b) {
      const std::int32_t end = args.rows * (b + 1) / row_blocks;
      float* sums = scratch.sums + row * kGroupColumns;
      const Target to = last ? Target{target.out + row * target.stride, target.stride, target.add}
                             : Target{sums, kGroupColumns, false};
      PanelBlock<kMaxPanelRows>(end - row, args.x + row * args.x_stride + k, args.x_stride, panel,
                                count, k == 0 ? nullptr : sums,
                                {packed + bytes + bytes_per_input * count * b, bytes_per_input},
                                to);
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
  constexpr int kWideGroups = kWideVectors / kGroupVectors;
  const std::int64_t whole_groups = args.outputs / kGroupColumns;
  for (std::int64_t g = first; g < last;) {
    const std::byte* group = args.weights + g * args.group_bytes;
    float* out = args.out + g * kGroupColumns;
    const bool whole = g < whole_groups;
    const Target target =
        whole ? Target{out, args.out_stride, args.add} : Target{scratch.edge, kGroupColumns, false};
    std::int64_t groups = 1;
    if (args.rows > kMaxDirectRows) {
      BlockedGroup<Format>(args, group, target, scratch);
    } else if (args.rows <= kMaxWideRows && g + kWideGroups <= last &&
               g + kWideGroups <= whole_groups) {
      DirectGroups<Format, kMaxWideRows, kWideGroups>(args, group, target);
      groups = kWideGroups;
    } else {
      DirectGroups<Format, kMaxDirectRows, 1>(args, group, target);
    }
    if (!whole) {
      CopyEdge(args, static_cast<std::int32_t>(args.outputs - g * kGroupColumns), scratch.edge,
               out);
    }
    g += groups;
  }
}

}  // namespace quire::kernels::cpu::QUIRE_ISA_NAMESPACE
