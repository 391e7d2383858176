// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A number is a pure function of (seed, branch, position), so what a request
// draws does not depend on what else is in the batch or on how often it was preempted.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

// One block of four 32-bit numbers for a 128-bit counter and a 64-bit key.
std::array<std::uint32_t, 4> Philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// A double in (0, 1) with 53 random bits for output position `position` of branch `branch`.
double PhiloxUniform(std::uint64_t seed, std::uint32_t branch, std::uint64_t position);

}  // namespace quire
