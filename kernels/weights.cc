#include "kernels/weights.h"

namespace quire::kernels {

std::string_view WeightFormatName(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kInt8Group32:
      return "int8_g32";
    case WeightFormat::kInt4Group32:
      return "int4_g32";
  }
  return "unknown";
}

}  // namespace quire::kernels
