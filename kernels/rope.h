// Tables for rotary position embeddings (Su et al. 2021), computed in double by our own functions,
// so that the same model gives the same bits on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace quire::kernels {

// base^(-2i / rotary_dim) for i in [0, rotary_dim / 2): the unscaled frequencies. Scaling schemes
// (linear, llama3, ...) change these numbers before a table is made.
std::vector<double> RopeInverseFrequencies(double base, std::int32_t rotary_dim);

// Angle of pair i at position p: p * inverse_frequencies[i]. `magnitude` multiplies every cosine
// and sine (YaRN's attention factor).
RopeTable MakeRopeTable(RopeStyle style, std::span<const double> inverse_frequencies,
                        std::int32_t max_positions, double magnitude = 1.0);

}  // namespace quire::kernels
