#include "kernels/rope.h"

#include <cstddef>

#include "base/check.h"
#include "kernels/math.h"

namespace quire::kernels {

std::vector<double> RopeInverseFrequencies(double base, std::int32_t rotary_dim) {
  QUIRE_CHECK(base > 0 && rotary_dim >= 0 && rotary_dim % 2 == 0) << base << ' ' << rotary_dim;
  std::vector<double> frequencies(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = Pow(base, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return frequencies;
}

RopeTable MakeRopeTable(RopeStyle style, std::span<const double> inverse_frequencies,
                        std::int32_t max_positions, double magnitude) {
  RopeTable table;
  table.style = style;
  table.rotary_dim = static_cast<std::int32_t>(2 * inverse_frequencies.size());
  const std::size_t size = inverse_frequencies.size() * static_cast<std::size_t>(max_positions);
  table.cos.reserve(size);
  table.sin.reserve(size);
  for (std::int32_t position = 0; position < max_positions; ++position) {
    for (const double frequency : inverse_frequencies) {
      const SinCosResult value = SinCos(position * frequency);
      table.cos.push_back(static_cast<float>(value.cos * magnitude));
      table.sin.push_back(static_cast<float>(value.sin * magnitude));
    }
  }
  return table;
}

}  // namespace quire::kernels
