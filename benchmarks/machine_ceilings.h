// What this machine can do at most, measured in the process that prints the figures compared to it.
#pragma once

#include <string_view>

namespace quire::benchmarks {

// Bytes per second that `threads` threads together read from memory, in GB/s (1e9): the best of a
// few passes over buffers larger than the caches.
double MeasureReadBandwidth(int threads);

// f32 multiply-adds from registers on `threads` threads together, in GFLOP/s (two per
// multiply-add); the best of a few tries. isa: "avx2" or "avx512", which the machine must have.
double MeasureFmaPeak(std::string_view isa, int threads);

}  // namespace quire::benchmarks
