#include "benchmarks/machine_ceilings.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"

namespace quire::benchmarks {
namespace {

constexpr int kTries = 7;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs body(thread) on all threads at once and returns the seconds until the last one is done.
double TimeTogether(int threads, const std::function<void(int)>& body) {
  const double start = Seconds();
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(body, t);
  body(0);
  for (std::thread& other : others) other.join();
  return Seconds() - start;
}

__attribute__((target("avx2"))) std::int64_t ReadAll(const std::byte* data, std::size_t size) {
  __m256i sum[4] = {};
  for (std::size_t i = 0; i + 128 <= size; i += 128) {
    for (int v = 0; v < 4; ++v) {
      const auto* at =
          reinterpret_cast<const __m256i*>(data + i + static_cast<std::size_t>(v) * 32);
      sum[v] = _mm256_xor_si256(sum[v], _mm256_load_si256(at));
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return _mm256_extract_epi64(all, 0);
}

constexpr std::int64_t kFmaRounds = 1 << 20;
constexpr int kFmaChains = 12;

// The accumulators stay in registers: kFmaChains independent chains hide the latency.
__attribute__((target("avx512f"))) void FmaAvx512() {
  __m512 sum[kFmaChains] = {};
  __m512 x = _mm512_set1_ps(0.5F);
  for (std::int64_t i = 0; i < kFmaRounds; ++i) {
    for (int c = 0; c < kFmaChains; ++c) {
      sum[c] = _mm512_fmadd_ps(x, x, sum[c]);
      __asm__ volatile("" : "+v"(sum[c]));
    }
  }
}

__attribute__((target("avx2,fma"))) void FmaAvx2() {
  __m256 sum[kFmaChains] = {};
  __m256 x = _mm256_set1_ps(0.5F);
  for (std::int64_t i = 0; i < kFmaRounds; ++i) {
    for (int c = 0; c < kFmaChains; ++c) {
      sum[c] = _mm256_fmadd_ps(x, x, sum[c]);
      __asm__ volatile("" : "+x"(sum[c]));
    }
  }
}

}  // namespace

double MeasureReadBandwidth(int threads) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  auto buffer = kernels::cpu::AlignedBuffer::Allocate(kBytes);
  if (!buffer.ok()) return 0;
  std::fill_n(buffer->data(), kBytes, std::byte{1});
  const std::size_t share = kBytes / static_cast<std::size_t>(threads) / 128 * 128;
  double best = 1e9;
  volatile std::int64_t sink = 0;
  for (int i = 0; i < kTries; ++i) {
    best = std::min(best, TimeTogether(threads, [&](int t) {
                      sink = ReadAll(buffer->data() + static_cast<std::size_t>(t) * share, share);
                    }));
  }
  return static_cast<double>(share) * threads / best / 1e9;
}

double MeasureFmaPeak(std::string_view isa, int threads) {
  const bool wide = isa == "avx512";
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) {
    best = std::min(best, TimeTogether(threads, [&](int) { wide ? FmaAvx512() : FmaAvx2(); }));
  }
  return 2.0 * (wide ? 16 : 8) * kFmaChains * static_cast<double>(kFmaRounds) * threads / best /
         1e9;
}

}  // namespace quire::benchmarks
