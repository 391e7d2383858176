// Rotary position embeddings: the frequencies that a configuration asks for, as a table of angles.
//
// Formulas: RoFormer (Su et al. 2021); linear: position interpolation (Chen et al. 2023); llama3
// and yarn (Peng et al. 2023) as transformers' modeling_rope_utils.py computes them. All arithmetic
// is double on kernels/math.h, so every processor gets the same table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace quire::engine::model {

// INVALID_ARGUMENT when a number is out of its range; `source` begins the message.
absl::Status CheckRope(const std::string& source, const RopeConfig& rope);

// 0.1 ln(factor) + 1: how much yarn scales queries and keys unless a file says otherwise.
double YarnAttentionFactor(double factor);

// What each position turns each rotated pair by, in radians, scaling applied. [rotary_dim / 2]
std::vector<double> ScaledInverseFrequencies(const RopeConfig& rope);

// The table for [0, max_positions), times yarn's attention factor.
kernels::RopeTable RopeTableFor(const RopeConfig& rope, std::int32_t max_positions);

}  // namespace quire::engine::model
