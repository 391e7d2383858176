// Elementary functions and 16-bit floats of our own: the same bits on every processor and with
// every C library, which libm does not promise. Only +, -, *, / and integer operations; built with
// -ffp-contract=off.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/math_constants.h"

namespace quire::kernels {

// e^x with relative error below 1.3e-7 (1.1 ulp). 0 where the result would be subnormal (x <
// -87.3365) and for -infinity; infinity where it would overflow; NaN for NaN. Inline and without
// branches, so that loops over it are vectorised.
inline float Exp(float x) {
  using K = ExpConstants;
  const float clamped = x > K::kMax ? K::kMax : x;
  const float shifted = clamped * K::kLog2E + K::kRound;
  const float n = shifted - K::kRound;
  const float r = (clamped - n * K::kLn2High) - n * K::kLn2Low;
  const float q = (((K::kC4 * r + K::kC3) * r + K::kC2) * r + K::kC1) * r + K::kC0;
  const float e = 1.0F + (r + (r * r) * q);
  // The exponent goes in by two factors, because 2^128 is not a float. Unsigned arithmetic, since
  // n is garbage for arguments that end as 0 or NaN.
  const std::uint32_t exponent =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(K::kRound);
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(exponent) >> 1);
  const float scaled = e * std::bit_cast<float>((half + 127U) << 23) *
                       std::bit_cast<float>((exponent - half + 127U) << 23);
  return x < K::kMin ? 0.0F : scaled;
}

// e^x with relative error below 4e-16 (2 ulp). 0 below -708.3, infinity above 709.7.
double Exp(double x);

// Natural logarithm with error below 4e-16 relative or 1e-16 absolute. -infinity for 0, NaN for
// negative numbers and NaN.
double Log(double x);

// The same, rounded to float.
inline float Log(float x) { return static_cast<float>(Log(static_cast<double>(x))); }

// base^exponent for base > 0. Relative error about (2 + |exponent * ln base|) * 2^-52.
double Pow(double base, double exponent);

struct SinCosResult {
  double sin;
  double cos;
};

// Sine and cosine of an angle in radians, |angle| <= 2^20 * pi / 2 (1.6 million: more than any
// context length). Absolute error below 4e-16.
SinCosResult SinCos(double angle);

// IEEE half precision and bfloat16, rounding to nearest, ties to even, as the F16C instructions do:
// overflow gives infinity, a NaN stays a quiet NaN with the upper bits of its payload.
std::uint16_t F32ToF16(float value);
float F16ToF32(std::uint16_t bits);
std::uint16_t F32ToBf16(float value);
inline float Bf16ToF32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace quire::kernels
