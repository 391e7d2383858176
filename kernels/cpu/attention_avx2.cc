#include "kernels/cpu/attention_kernels.h"

#include <immintrin.h>

#include "kernels/math_constants.h"

namespace quire::kernels::cpu {
namespace {

// Register blocks: at most 12 of the 16 registers are accumulators; fewer rows take more vectors,
// so that enough independent chains are in flight.
constexpr int kMaxRows = 6;
constexpr int WideVectors(int rows) { return rows >= 4 ? 1 : rows >= 2 ? 2 : 4; }

// 16 floats, as the cache groups them.
struct Vec {
  __m256 a;
  __m256 b;
};

inline Vec Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec Broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Vec LoadF16(const void* p) {
  const auto* halves = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
inline __m256 WidenBf16(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
inline Vec LoadBf16(const void* p) {
  const auto* halves = static_cast<const __m128i*>(p);
  return {WidenBf16(_mm_loadu_si128(halves)), WidenBf16(_mm_loadu_si128(halves + 1))};
}
inline void Store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline Vec Add(Vec x, Vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Vec Sub(Vec x, Vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Vec Mul(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Vec Max(Vec x, Vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Vec MulAdd(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline bool AnyAbove(Vec x, float limit) {
  const __m256 l = _mm256_set1_ps(limit);
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(x.a, l, _CMP_GT_OQ),
                                         _mm256_cmp_ps(x.b, l, _CMP_GT_OQ))) != 0;
}

inline __m256 KeepLanes8(__m256 x, int begin, int end) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane);
  const __m256i inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane);
  const __m256 keep = _mm256_castsi256_ps(_mm256_andnot_si256(before, inside));
  return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x, keep);
}
// Lanes outside [begin, end) become -infinity.
inline Vec KeepLanes(Vec x, int begin, int end) {
  return {KeepLanes8(x.a, begin, end), KeepLanes8(x.b, begin - 8, end - 8)};
}

inline __m256 FirstFoldSum(Vec x) { return _mm256_add_ps(x.a, x.b); }
inline __m256 FirstFoldMax(Vec x) { return _mm256_max_ps(x.a, x.b); }

inline __m256 Exp2Of8(__m256 x) {
  using K = Exp2Constants;
  const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 f = _mm256_sub_ps(x, n);
  __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(K::kC4), f, _mm256_set1_ps(K::kC3));
  q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(K::kC2));
  q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(K::kC1));
  q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(K::kC0));
  const __m256 e = _mm256_fmadd_ps(q, f, _mm256_set1_ps(1.0F));
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  const __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  const __m256 keep = _mm256_cmp_ps(x, _mm256_set1_ps(K::kMin), _CMP_NLT_UQ);
  return _mm256_and_ps(keep, _mm256_mul_ps(e, scale));
}
// 2^x for x < 127; 0 below 2^-126, NaN for NaN.
inline Vec Exp2(Vec x) { return {Exp2Of8(x.a), Exp2Of8(x.b)}; }

#include "kernels/cpu/attention_body.inc"

}  // namespace

const AttentionKernels kAttentionAvx2 = kBodyKernels;

}  // namespace quire::kernels::cpu
