// Constants of the float exponential functions, shared by the scalar code (kernels/math.h) and the
// vector code of each instruction set level, so that both compute the same polynomial.
//
// Only constants: files compiled for one instruction set level may include this header.
#pragma once

namespace quire::kernels {

// e^x: n = round(x * log2(e)), r = (x - n * kLn2High) - n * kLn2Low in [-ln2/2, ln2/2],
// e^r = 1 + (r + r^2 * (c0 + c1 r + c2 r^2 + c3 r^3 + c4 r^4)). Minimax in relative error, 3.1e-9
// before rounding. n * kLn2High is exact (10 significant bits).
struct ExpConstants {
  static constexpr float kMax = 89.0F;        // Results from here on are infinite.
  static constexpr float kMin = -87.336544F;  // Results below would be subnormal: they are 0.
  static constexpr float kLog2E = 1.44269504F;
  static constexpr float kLn2High = 0.693359375F;
  static constexpr float kLn2Low = -2.12194440e-4F;
  // Adding and subtracting it rounds a float of magnitude < 2^22 to the nearest integer, ties to
  // even.
  static constexpr float kRound = 12582912.0F;
  static constexpr float kC0 = 0.499999934518F;
  static constexpr float kC1 = 0.166665206899F;
  static constexpr float kC2 = 0.0416683873469F;
  static constexpr float kC3 = 0.00836870981967F;
  static constexpr float kC4 = 0.00138146141739F;
};

// 2^x: n = round(x), f = x - n in [-1/2, 1/2],
// 2^f = 1 + f * (c0 + c1 f + c2 f^2 + c3 f^3 + c4 f^4), fused multiply-adds. Minimax in relative
// error, 9.2e-8 before rounding.
struct Exp2Constants {
  static constexpr float kMin = -126.0F;  // Results below would be subnormal: they are 0.
  static constexpr float kC0 = 0.6931469776F;
  static constexpr float kC1 = 0.240222420854F;
  static constexpr float kC2 = 0.0555073374206F;
  static constexpr float kC3 = 0.00967151263955F;
  static constexpr float kC4 = 0.00132647275846F;
};

}  // namespace quire::kernels
