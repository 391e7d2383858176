#include "kernels/cpu/attention_kernels.h"

#include <immintrin.h>

#include "kernels/math_constants.h"

// g++ 12 takes the deliberately undefined operands inside its own AVX-512 intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace quire::kernels::cpu {
namespace {

// Register blocks: 6 rows by 4 vectors take 24 accumulators, 4 keys or values and a broadcast.
constexpr int kMaxRows = 6;
constexpr int WideVectors(int /*rows*/) { return 4; }

// 16 floats.
struct Vec {
  __m512 v;
};

inline Vec Zero() { return {_mm512_setzero_ps()}; }
inline Vec Broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Vec LoadF16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
inline Vec LoadBf16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline void Store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }
inline Vec Add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec Sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec Mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec MulAdd(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline bool AnyAbove(Vec a, float limit) {
  return _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
}

// Lanes outside [begin, end) become -infinity.
inline Vec KeepLanes(Vec a, int begin, int end) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 keep = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(begin)) &
                         _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end));
  return {_mm512_mask_blend_ps(keep, _mm512_set1_ps(-__builtin_inff()), a.v)};
}

inline __m256 FirstFoldSum(Vec a) {
  return _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
}
inline __m256 FirstFoldMax(Vec a) {
  return _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
}

// 2^x; 0 below 2^-126, NaN for NaN.
inline Vec Exp2(Vec x) {
  using K = Exp2Constants;
  const __m512 n = _mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x.v, n);
  __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(K::kC4), f, _mm512_set1_ps(K::kC3));
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(K::kC2));
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(K::kC1));
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(K::kC0));
  const __m512 e = _mm512_fmadd_ps(q, f, _mm512_set1_ps(1.0F));
  const __mmask16 keep = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(K::kMin), _CMP_NLT_UQ);
  return {_mm512_maskz_scalef_ps(keep, e, n)};
}

#include "kernels/cpu/attention_body.inc"

}  // namespace

const AttentionKernels kAttentionAvx512 = kBodyKernels;

}  // namespace quire::kernels::cpu
