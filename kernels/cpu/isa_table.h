// The kernels of one instruction set level, as plain function pointers. Each level is one
// translation unit with its own compiler flags, which must not emit any inline function that other
// translation units could share (the linker would keep either copy): no std:: templates there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/packed_layout.h"

namespace quire::kernels::cpu {

// out[r, c] = or += sum over k of x[r, k] * w[c, k]: k ascending, one accumulator, fused
// multiply-add.
struct LinearArgs {
  const std::byte* weights = nullptr;  // See packed_layout.h.
  std::int64_t group_bytes = 0;        // From one column group to the next.
  std::int32_t inputs = 0;
  std::int32_t outputs = 0;
  const float* x = nullptr;  // [rows, inputs]
  std::int64_t x_stride = 0;
  std::int32_t rows = 0;
  float* out = nullptr;  // [rows, outputs]
  std::int64_t out_stride = 0;
  bool add = false;
};

// Memory that one worker needs to run a linear kernel.
struct LinearScratch {
  static constexpr std::int32_t kMaxRows = 128;    // Of LinearArgs::rows.
  static constexpr std::int32_t kMaxInputs = 128;  // Dequantised at a time: 16 KiB.

  alignas(64) float panel[kMaxInputs * kGroupColumns];  // Dequantised weights.
  alignas(64) float sums[kMaxRows * kGroupColumns];     // Partial sums between blocks of inputs.
  alignas(64) float edge[kMaxRows * kGroupColumns];     // Outputs of an incomplete column group.
};

// Column groups [first, last). REQUIRES: rows <= LinearScratch::kMaxRows.
using LinearKernel = void (*)(const LinearArgs& args, std::int64_t first, std::int64_t last,
                              LinearScratch& scratch);

struct IsaTable {
  LinearKernel linear[kNumPackedFormats];  // By PackedFormat.
  // out[i] = x[i] / sqrt(mean(x^2) + epsilon) * gain[i]
  void (*rms_norm)(const float* x, const float* gain, std::int32_t size, float epsilon, float* out);
  // out[i] = gate[i] / (1 + e^-gate[i]) * up[i]
  void (*silu_gate)(const float* gate, const float* up, std::int32_t size, float* out);
  // The tanh form of GELU: out[i] = gate[i] / 2 * (1 + tanh(u)) * up[i],
  // u = sqrt(2 / pi) * (gate[i] + 0.044715 * gate[i]^3)
  void (*gelu_tanh_gate)(const float* gate, const float* up, std::int32_t size, float* out);
};

extern const IsaTable kAvx2Table;
extern const IsaTable kAvx512Table;

}  // namespace quire::kernels::cpu
