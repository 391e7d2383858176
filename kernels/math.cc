#include "kernels/math.h"

#include <cstddef>

#include "base/check.h"

namespace quire::kernels {
namespace {

constexpr double kLn2High = 0x1.62e42fefp-1;  // 33 bits: n * kLn2High is exact for |n| < 2^20.
constexpr double kLn2Low = 0x1.473de6af278edp-34;
constexpr double kLog2E = 0x1.71547652b82fep+0;

// pi/2 in three parts of 33 bits, for exact products with |n| < 2^20 (Cody and Waite).
constexpr double kPio2A = 0x1.921fb544p+0;
constexpr double kPio2B = 0x1.0b4611a6p-34;
constexpr double kPio2C = 0x1.3198a2e037073p-69;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Adding and subtracting it rounds to the nearest integer, ties to even.
constexpr double kRound = 0x1.8p52;

// Sum of c[i] * x^i by Horner's rule.
template <std::size_t N>
double Polynomial(const double (&c)[N], double x) {
  double sum = c[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

double PowerOfTwo(std::int64_t exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// Taylor series on [-pi/4, pi/4]: the first term left out is below 2^-57 of the result.
double SinKernel(double x) {
  static constexpr double kTaylor[] = {-1.0 / 6,
                                       1.0 / 120,
                                       -1.0 / 5040,
                                       1.0 / 362880,
                                       -1.0 / 39916800,
                                       1.0 / 6227020800.0,
                                       -1.0 / 1307674368000.0,
                                       1.0 / 355687428096000.0};
  const double xx = x * x;
  return x + x * (xx * Polynomial(kTaylor, xx));
}

double CosKernel(double x) {
  static constexpr double kTaylor[] = {
      1.0 / 24,        -1.0 / 720,           1.0 / 40320,           -1.0 / 3628800,
      1.0 / 479001600, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
  const double xx = x * x;
  return 1.0 - (0.5 * xx - xx * (xx * Polynomial(kTaylor, xx)));
}

}  // namespace

double Exp(double x) {
  if (!(x >= -708.3)) return x < 0 ? 0.0 : x;  // x itself is NaN then.
  if (x > 709.7) return std::numeric_limits<double>::infinity();
  // 1/k!; 0.3466^14 / 14! is below 2^-57.
  static constexpr double kTaylor[] = {1.0 / 2,          1.0 / 6,         1.0 / 24,
                                       1.0 / 120,        1.0 / 720,       1.0 / 5040,
                                       1.0 / 40320,      1.0 / 362880,    1.0 / 3628800,
                                       1.0 / 39916800.0, 1.0 / 479001600, 1.0 / 6227020800.0};
  const double n = (x * kLog2E + kRound) - kRound;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  const double e = 1.0 + (r + (r * r) * Polynomial(kTaylor, r));
  const auto exponent = static_cast<std::int64_t>(n);
  const std::int64_t half = exponent / 2;  // 2^1024 is not a double.
  return e * PowerOfTwo(half) * PowerOfTwo(exponent - half);
}

double Log(double x) {
  if (!(x > 0)) {
    return x == 0 ? -std::numeric_limits<double>::infinity()
                  : std::numeric_limits<double>::quiet_NaN();
  }
  if (x > std::numeric_limits<double>::max()) return x;
  std::int64_t exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  // x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)).
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  constexpr std::uint64_t kSqrt2Mantissa = 0x6a09e667f3bcdULL;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  std::uint64_t biased = 1023;
  exponent += static_cast<std::int64_t>(bits >> 52) - 1023;
  if ((bits & kMantissa) >= kSqrt2Mantissa) {
    biased = 1022;
    ++exponent;
  }
  const double m = std::bit_cast<double>((bits & kMantissa) | (biased << 52));
  // log m = 2 atanh(s) with s = (m - 1) / (m + 1), |s| < 0.1716; atanh s = s + s^3/3 + s^5/5 + ...
  static constexpr double kSeries[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                       2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const double s = (m - 1.0) / (m + 1.0);
  const double ss = s * s;
  const double n = static_cast<double>(exponent);
  return n * kLn2High + (2.0 * s + (s * (ss * Polynomial(kSeries, ss)) + n * kLn2Low));
}

double Pow(double base, double exponent) { return Exp(exponent * Log(base)); }

SinCosResult SinCos(double angle) {
  QUIRE_DCHECK(angle >= -1.6e6 && angle <= 1.6e6) << angle;
  const double n = (angle * kTwoOverPi + kRound) - kRound;
  const double r = ((angle - n * kPio2A) - n * kPio2B) - n * kPio2C;
  const double s = SinKernel(r);
  const double c = CosKernel(r);
  switch (static_cast<std::int64_t>(n) & 3) {
    case 0:
      return {.sin = s, .cos = c};
    case 1:
      return {.sin = c, .cos = -s};
    case 2:
      return {.sin = -s, .cos = -c};
    default:
      return {.sin = -c, .cos = s};
  }
}

std::uint16_t F32ToF16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  } else if (magnitude >= 0x47800000U) {  // 65536
    half = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {  // 2^-14, the smallest normal half
    half = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  } else {
    // The ulp of 0.5f is 2^-24, the unit of subnormal halves: the addition rounds.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
           std::bit_cast<std::uint32_t>(0.5F);
  }
  return static_cast<std::uint16_t>(sign | half);
}

float F16ToF32(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  std::uint32_t magnitude = 0;
  if (exponent == 0) {
    magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24F);
  } else if (exponent == 0x1f) {
    magnitude = 0x7f800000U | (mantissa << 13) | (mantissa != 0 ? 0x400000U : 0U);
  } else {
    magnitude = ((exponent + 112U) << 23) | (mantissa << 13);
  }
  return std::bit_cast<float>(sign | magnitude);
}

std::uint16_t F32ToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace quire::kernels
