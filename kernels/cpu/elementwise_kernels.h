// Norm and gated activations of one instruction set level. Included by isa_*.cc only.
//
// Every element is a function of its own row: sums run over a fixed number of lanes in a fixed
// order.
#pragma once

#include <cstdint>

#include "kernels/cpu/vec.h"
#include "kernels/math_constants.h"

namespace quire::kernels::cpu::QUIRE_ISA_NAMESPACE {

// Lane by lane the same operations as kernels/math.h's Exp(float), hence the same bits.
QUIRE_INLINE VecF Exp(VecF x) {
  using K = ExpConstants;
  const VecF clamped = Min(Set(K::kMax), x);
  const VecF shifted = Add(Mul(clamped, Set(K::kLog2E)), Set(K::kRound));
  const VecF n = Sub(shifted, Set(K::kRound));
  const VecF r = Sub(Sub(clamped, Mul(n, Set(K::kLn2High))), Mul(n, Set(K::kLn2Low)));
  VecF q = Add(Mul(Set(K::kC4), r), Set(K::kC3));
  q = Add(Mul(q, r), Set(K::kC2));
  q = Add(Mul(q, r), Set(K::kC1));
  q = Add(Mul(q, r), Set(K::kC0));
  const VecF e = Add(Set(1.0F), Add(r, Mul(Mul(r, r), q)));
  const VecI exponent = SubI(AsInt(shifted), AsInt(Set(K::kRound)));
  const VecI half = ShiftRightSigned<1>(exponent);
  const VecI bias = SetI(127);
  const VecF scaled = Mul(Mul(e, AsFloat(ShiftLeft<23>(AddI(half, bias)))),
                          AsFloat(ShiftLeft<23>(AddI(SubI(exponent, half), bias))));
  return ZeroIfLess(x, Set(K::kMin), scaled);
}

// 1 / sqrt(mean(x^2) + epsilon)
inline float InverseRms(const float* x, std::int32_t size, float epsilon) {
  constexpr int kChains = 32 / kLanes;
  VecF sum[kChains];
  for (VecF& s : sum) s = Zero();
  std::int32_t i = 0;
  for (; i + 32 <= size; i += 32) {
    for (int c = 0; c < kChains; ++c) {
      const VecF v = Load(x + i + c * kLanes);
      sum[c] = Fma(v, v, sum[c]);
    }
  }
  float lanes[32];
  for (int c = 0; c < kChains; ++c) Store(lanes + c * kLanes, sum[c]);
  for (int lane = 0; i < size; ++i, ++lane) lanes[lane] += x[i] * x[i];
  for (int width = 16; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  const float mean = lanes[0] / static_cast<float>(size);
  return 1.0F / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + epsilon)));
}

inline void RmsNorm(const float* x, const float* gain, std::int32_t size, float epsilon,
                    float* out) {
  const float scale = InverseRms(x, size, epsilon);
  std::int32_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Store(out + i, Mul(Mul(Load(x + i), Set(scale)), Load(gain + i)));
  }
  for (; i < size; ++i) out[i] = x[i] * scale * gain[i];
}

QUIRE_INLINE VecF SiluTimes(VecF gate, VecF up) {
  return Mul(Div(gate, Add(Set(1.0F), Exp(Sub(Zero(), gate)))), up);
}

// x / 2 * (1 + tanh(u)) = x / (1 + e^-2u)
QUIRE_INLINE VecF GeluTanhTimes(VecF gate, VecF up) {
  const VecF cube = Mul(Mul(gate, gate), gate);
  const VecF inner = Add(gate, Mul(Set(0.044715F), cube));
  const VecF exponent = Mul(Set(-1.5957691216F), inner);  // -2 sqrt(2 / pi)
  return Mul(Div(gate, Add(Set(1.0F), Exp(exponent))), up);
}

// Applies `function` to all elements; the last, incomplete vector goes through a padded copy.
template <class Function>
QUIRE_INLINE void ForEachVector(const float* gate, const float* up, std::int32_t size, float* out,
                                Function function) {
  std::int32_t i = 0;
  for (; i + kLanes <= size; i += kLanes) Store(out + i, function(Load(gate + i), Load(up + i)));
  if (i == size) return;
  float padded_gate[kLanes] = {};
  float padded_up[kLanes] = {};
  for (std::int32_t j = i; j < size; ++j) {
    padded_gate[j - i] = gate[j];
    padded_up[j - i] = up[j];
  }
  Store(padded_gate, function(Load(padded_gate), Load(padded_up)));
  for (std::int32_t j = i; j < size; ++j) out[j] = padded_gate[j - i];
}

inline void SiluGate(const float* gate, const float* up, std::int32_t size, float* out) {
  ForEachVector(gate, up, size, out, [](VecF g, VecF u) { return SiluTimes(g, u); });
}

inline void GeluTanhGate(const float* gate, const float* up, std::int32_t size, float* out) {
  ForEachVector(gate, up, size, out, [](VecF g, VecF u) { return GeluTanhTimes(g, u); });
}

}  // namespace quire::kernels::cpu::QUIRE_ISA_NAMESPACE
