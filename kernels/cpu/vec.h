// A thin layer over vector registers: the same kernel source compiles for 8 lanes (AVX2 + FMA) and
// 16 lanes (AVX-512). Only for translation units of one instruction set level, which define
// QUIRE_ISA_NAMESPACE before they include it, so that each level has its own copy of everything.
#pragma once

#include <immintrin.h>

#include <cstdint>

#ifndef QUIRE_ISA_NAMESPACE
#error "define QUIRE_ISA_NAMESPACE before including vec.h"
#endif

#define QUIRE_INLINE inline __attribute__((always_inline))

namespace quire::kernels::cpu::QUIRE_ISA_NAMESPACE {

#if defined(__AVX512F__)

inline constexpr int kLanes = 16;
using VecF = __m512;
using VecI = __m512i;  // 32-bit lanes unless a name says otherwise.

QUIRE_INLINE VecF Zero() { return _mm512_setzero_ps(); }
QUIRE_INLINE VecF Set(float x) { return _mm512_set1_ps(x); }
QUIRE_INLINE VecI SetI(std::int32_t x) { return _mm512_set1_epi32(x); }
QUIRE_INLINE VecF Load(const float* p) { return _mm512_loadu_ps(p); }
QUIRE_INLINE void Store(float* p, VecF x) { _mm512_storeu_ps(p, x); }
QUIRE_INLINE VecI LoadI(const void* p) { return _mm512_loadu_si512(p); }
// kLanes half floats, widened.
QUIRE_INLINE VecF LoadF16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
QUIRE_INLINE VecF Add(VecF a, VecF b) { return _mm512_add_ps(a, b); }
QUIRE_INLINE VecF Sub(VecF a, VecF b) { return _mm512_sub_ps(a, b); }
QUIRE_INLINE VecF Mul(VecF a, VecF b) { return _mm512_mul_ps(a, b); }
QUIRE_INLINE VecF Div(VecF a, VecF b) { return _mm512_div_ps(a, b); }
QUIRE_INLINE VecF Fma(VecF a, VecF b, VecF c) { return _mm512_fmadd_ps(a, b, c); }
// a < b ? a : b, lane by lane (so b where either is NaN); Max likewise with >.
QUIRE_INLINE VecF Min(VecF a, VecF b) { return _mm512_min_ps(a, b); }
QUIRE_INLINE VecF Max(VecF a, VecF b) { return _mm512_max_ps(a, b); }
QUIRE_INLINE VecI AddI(VecI a, VecI b) { return _mm512_add_epi32(a, b); }
QUIRE_INLINE VecI SubI(VecI a, VecI b) { return _mm512_sub_epi32(a, b); }
QUIRE_INLINE VecI And(VecI a, VecI b) { return _mm512_and_si512(a, b); }
QUIRE_INLINE VecF ToFloat(VecI x) { return _mm512_cvtepi32_ps(x); }
QUIRE_INLINE VecF AsFloat(VecI x) { return _mm512_castsi512_ps(x); }
QUIRE_INLINE VecI AsInt(VecF x) { return _mm512_castps_si512(x); }
template <int kBits>
QUIRE_INLINE VecI ShiftLeft(VecI x) {
  return _mm512_slli_epi32(x, kBits);
}
template <int kBits>
QUIRE_INLINE VecI ShiftRight(VecI x) {  // Zeros come in.
  return _mm512_srli_epi32(x, kBits);
}
template <int kBits>
QUIRE_INLINE VecI ShiftRightSigned(VecI x) {
  return _mm512_srai_epi32(x, kBits);
}
// a < b ? 0 : x, lane by lane.
QUIRE_INLINE VecF ZeroIfLess(VecF a, VecF b, VecF x) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), x);
}

#else

inline constexpr int kLanes = 8;
using VecF = __m256;
using VecI = __m256i;

QUIRE_INLINE VecF Zero() { return _mm256_setzero_ps(); }
QUIRE_INLINE VecF Set(float x) { return _mm256_set1_ps(x); }
QUIRE_INLINE VecI SetI(std::int32_t x) { return _mm256_set1_epi32(x); }
QUIRE_INLINE VecF Load(const float* p) { return _mm256_loadu_ps(p); }
QUIRE_INLINE void Store(float* p, VecF x) { _mm256_storeu_ps(p, x); }
QUIRE_INLINE VecI LoadI(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
QUIRE_INLINE VecF LoadF16(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
QUIRE_INLINE VecF Add(VecF a, VecF b) { return _mm256_add_ps(a, b); }
QUIRE_INLINE VecF Sub(VecF a, VecF b) { return _mm256_sub_ps(a, b); }
QUIRE_INLINE VecF Mul(VecF a, VecF b) { return _mm256_mul_ps(a, b); }
QUIRE_INLINE VecF Div(VecF a, VecF b) { return _mm256_div_ps(a, b); }
QUIRE_INLINE VecF Fma(VecF a, VecF b, VecF c) { return _mm256_fmadd_ps(a, b, c); }
QUIRE_INLINE VecF Min(VecF a, VecF b) { return _mm256_min_ps(a, b); }
QUIRE_INLINE VecF Max(VecF a, VecF b) { return _mm256_max_ps(a, b); }
QUIRE_INLINE VecI AddI(VecI a, VecI b) { return _mm256_add_epi32(a, b); }
QUIRE_INLINE VecI SubI(VecI a, VecI b) { return _mm256_sub_epi32(a, b); }
QUIRE_INLINE VecI And(VecI a, VecI b) { return _mm256_and_si256(a, b); }
QUIRE_INLINE VecF ToFloat(VecI x) { return _mm256_cvtepi32_ps(x); }
QUIRE_INLINE VecF AsFloat(VecI x) { return _mm256_castsi256_ps(x); }
QUIRE_INLINE VecI AsInt(VecF x) { return _mm256_castps_si256(x); }
template <int kBits>
QUIRE_INLINE VecI ShiftLeft(VecI x) {
  return _mm256_slli_epi32(x, kBits);
}
template <int kBits>
QUIRE_INLINE VecI ShiftRight(VecI x) {
  return _mm256_srli_epi32(x, kBits);
}
template <int kBits>
QUIRE_INLINE VecI ShiftRightSigned(VecI x) {
  return _mm256_srai_epi32(x, kBits);
}
QUIRE_INLINE VecF ZeroIfLess(VecF a, VecF b, VecF x) {
  return _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ), x);
}

#endif

}  // namespace quire::kernels::cpu::QUIRE_ISA_NAMESPACE
