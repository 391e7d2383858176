#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/status.h"
#include "kernels/math.h"
#include "kernels/rope.h"

namespace quire::engine::model {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = kTwoPi / frequency;
  const double old_length = rope.original_max_positions;
  if (wavelength > old_length / rope.low_frequency_factor) return frequency / rope.factor;
  if (wavelength < old_length / rope.high_frequency_factor) return frequency;
  const double smooth = (old_length / wavelength - rope.low_frequency_factor) /
                        (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// The (fractional) pair that makes `rotations` full turns over the original context.
double YarnCorrectionPair(const RopeConfig& rope, double rotations) {
  return rope.rotary_dim * kernels::Log(rope.original_max_positions / (rotations * kTwoPi)) /
         (2 * kernels::Log(rope.base));
}

// Fast pairs are kept, slow ones stretched by `factor`, with a linear ramp between.
void ScaleYarn(const RopeConfig& rope, std::vector<double>& frequencies) {
  const double low = std::max(std::floor(YarnCorrectionPair(rope, rope.beta_fast)), 0.0);
  double high =
      std::min(std::ceil(YarnCorrectionPair(rope, rope.beta_slow)), rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

}  // namespace

absl::Status CheckRope(const std::string& source, const RopeConfig& rope) {
  const auto positive = [&](const char* name, double value) -> absl::Status {
    if (std::isfinite(value) && value > 0) return absl::OkStatus();
    return InvalidArgument("{}: rope {} must be finite and positive, got {}", source, name, value);
  };
  QUIRE_RETURN_IF_ERROR(positive("base", rope.base));
  if (rope.base <= 1) {
    return InvalidArgument("{}: rope base must be above 1, got {}", source, rope.base);
  }
  for (const float factor : rope.frequency_factors) {
    QUIRE_RETURN_IF_ERROR(positive("frequency factor", factor));
  }
  if (rope.scaling == RopeScaling::kNone) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(positive("scaling factor", rope.factor));
  if (rope.scaling == RopeScaling::kLinear) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(positive("original context length", rope.original_max_positions));
  if (rope.scaling == RopeScaling::kLlama3) {
    QUIRE_RETURN_IF_ERROR(positive("low frequency factor", rope.low_frequency_factor));
    QUIRE_RETURN_IF_ERROR(positive("high frequency factor", rope.high_frequency_factor));
    if (rope.high_frequency_factor > rope.low_frequency_factor) return absl::OkStatus();
    return InvalidArgument("{}: rope high frequency factor {} must be above the low one, {}",
                           source, rope.high_frequency_factor, rope.low_frequency_factor);
  }
  QUIRE_RETURN_IF_ERROR(positive("beta_fast", rope.beta_fast));
  QUIRE_RETURN_IF_ERROR(positive("beta_slow", rope.beta_slow));
  return rope.attention_factor == 0 ? absl::OkStatus()
                                    : positive("attention factor", rope.attention_factor);
}

double YarnAttentionFactor(double factor) {
  return factor <= 1 ? 1.0 : 0.1 * kernels::Log(factor) + 1.0;
}

std::vector<double> ScaledInverseFrequencies(const RopeConfig& rope) {
  std::vector<double> frequencies = kernels::RopeInverseFrequencies(rope.base, rope.rotary_dim);
  for (std::size_t i = 0; i < rope.frequency_factors.size(); ++i) {
    frequencies[i] /= static_cast<double>(rope.frequency_factors[i]);
  }
  switch (rope.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeScaling::kLlama3:
      for (double& frequency : frequencies) frequency = Llama3Frequency(rope, frequency);
      break;
    case RopeScaling::kYarn:
      ScaleYarn(rope, frequencies);
      break;
  }
  return frequencies;
}

kernels::RopeTable RopeTableFor(const RopeConfig& rope, std::int32_t max_positions) {
  double magnitude = 1;
  if (rope.scaling == RopeScaling::kYarn) {
    magnitude =
        rope.attention_factor > 0 ? rope.attention_factor : YarnAttentionFactor(rope.factor);
  }
  return kernels::MakeRopeTable(rope.style, ScaledInverseFrequencies(rope), max_positions,
                                magnitude);
}

}  // namespace quire::engine::model
