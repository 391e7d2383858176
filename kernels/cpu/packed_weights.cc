#include "kernels/cpu/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "kernels/math.h"

namespace quire::kernels::cpu {
namespace {

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 30;

PackedFormat PackedFormatOf(WeightFormat format, bool offsets) {
  switch (format) {
    case WeightFormat::kF32:
      return PackedFormat::kF32;
    case WeightFormat::kBf16:
      return PackedFormat::kBf16;
    case WeightFormat::kInt8Group32:
      return offsets ? PackedFormat::kInt8Offset : PackedFormat::kInt8;
    case WeightFormat::kInt4Group32:
      return PackedFormat::kInt4Offset;
  }
  QUIRE_CHECK(false) << static_cast<int>(format);
  return PackedFormat::kF32;
}

// Where the 4 bytes of column `column` lie in the unit that holds input k.
std::int64_t UnitOffset(PackedFormat format, std::int64_t k, int column) {
  const std::int64_t block_inputs = BlockHeaderBytes(format) > 0 ? kBlockInputs : k + 1;
  const std::int64_t block = k / block_inputs;
  const std::int64_t unit = (k - block * block_inputs) / UnitInputs(format);
  return block * BlockBytes(format) + BlockHeaderBytes(format) + unit * kUnitBytes + column * 4;
}

// Where the scale of column `column` in the block of input k lies; its offset is kScalesBytes on.
std::int64_t ScaleOffset(PackedFormat format, std::int64_t k, int column) {
  return k / kBlockInputs * BlockBytes(format) + column * 2;
}

std::int64_t GroupBytes(PackedFormat format, std::int64_t inputs) {
  if (BlockHeaderBytes(format) > 0) return inputs / kBlockInputs * BlockBytes(format);
  return (inputs + UnitInputs(format) - 1) / UnitInputs(format) * kUnitBytes;
}

absl::Status CheckSources(std::span<const MatrixSource* const> sources, WeightFormat format) {
  if (sources.empty()) return InvalidArgument("no matrix to pack");
  const bool groups = format == WeightFormat::kInt8Group32 || format == WeightFormat::kInt4Group32;
  const auto encoding = format == WeightFormat::kInt8Group32 ? MatrixSource::Encoding::kInt8Group32
                                                             : MatrixSource::Encoding::kInt4Group32;
  const std::int64_t cols = sources[0]->cols();
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const MatrixSource& source = *sources[i];
    if (source.cols() != cols) {
      return InvalidArgument("matrix {} has {} columns, matrix 0 has {}", i, source.cols(), cols);
    }
    if (source.rows() < 1 || source.rows() > kMaxDimension || cols < 1 || cols > kMaxDimension) {
      return InvalidArgument("matrix {} is {} x {}; both must be in [1, {}]", i, source.rows(),
                             cols, kMaxDimension);
    }
    rows += source.rows();
    if (rows > kMaxDimension) {
      return InvalidArgument("the matrices have more than {} rows together", kMaxDimension);
    }
    if (groups && source.encoding() != encoding) {
      return InvalidArgument("matrix {} is not encoded as {}", i, WeightFormatName(format));
    }
  }
  if (groups && cols % kBlockInputs != 0) {
    return InvalidArgument("{} needs a multiple of {} columns, got {}", WeightFormatName(format),
                           kBlockInputs, cols);
  }
  return absl::OkStatus();
}

struct SourceRow {
  const MatrixSource* source;
  std::int64_t row;
};

// Row `output` of all sources end to end.
SourceRow FindRow(std::span<const MatrixSource* const> sources, std::int64_t output) {
  for (const MatrixSource* source : sources) {
    if (output < source->rows()) return {source, output};
    output -= source->rows();
  }
  QUIRE_CHECK(false) << "output beyond the last matrix";
  return {};
}

// Buffers of one worker.
struct RowBuffers {
  std::vector<float> values;       // [inputs]
  std::vector<std::int8_t> codes;  // [inputs]
  std::vector<float> scales;       // [inputs / 32]
  std::vector<float> offsets;
};

void PackFloats(PackedFormat format, std::span<const float> values, int column, std::byte* group) {
  std::byte* at = group + column * 4;
  if (format == PackedFormat::kF32) {
    for (const float value : values) {
      std::memcpy(at, &value, 4);
      at += kUnitBytes;
    }
    return;
  }
  for (std::size_t k = 0; k < values.size(); k += 2) {
    const std::uint32_t low = F32ToBf16(values[k]);
    const std::uint32_t high = k + 1 < values.size() ? F32ToBf16(values[k + 1]) : 0;
    const std::uint32_t pair = low | high << 16;
    std::memcpy(at, &pair, 4);
    at += kUnitBytes;
  }
}

// False when `value` is not a finite half float.
bool ToExactF16(float value, std::uint16_t& bits) {
  bits = F32ToF16(value);
  return F16ToF32(bits) == value && value - value == 0;
}

// What can go wrong with the groups of one row; `needs_offsets` asks for another packed format.
struct GroupError {
  bool needs_offsets = false;
  std::string message;  // Empty: none.
  bool any() const { return needs_offsets || !message.empty(); }
};

GroupError PackScales(PackedFormat format, const RowBuffers& row, int column, std::byte* group) {
  const bool offsets = BlockHeaderBytes(format) > kScalesBytes;
  for (std::size_t b = 0; b < row.scales.size(); ++b) {
    std::byte* at =
        group + ScaleOffset(format, static_cast<std::int64_t>(b) * kBlockInputs, column);
    std::uint16_t bits = 0;
    if (!ToExactF16(row.scales[b], bits)) {
      return {.message =
                  fmt::format("scale {} of group {} is not a finite f16 value", row.scales[b], b)};
    }
    std::memcpy(at, &bits, 2);
    if (!ToExactF16(row.offsets[b], bits)) {
      return {.needs_offsets = false,
              .message = fmt::format("offset {} of group {} is not a finite f16 value",
                                     row.offsets[b], b)};
    }
    if (offsets) {
      std::memcpy(at + kScalesBytes, &bits, 2);
    } else if (row.offsets[b] != 0) {
      return {.needs_offsets = true, .message = {}};
    }
  }
  return {};
}

GroupError PackCodes(PackedFormat format, std::span<const std::int8_t> codes, int column,
                     std::byte* group) {
  const int unit_inputs = UnitInputs(format);
  int seen = 0;
  for (std::size_t block = 0; block < codes.size(); block += kBlockInputs) {
    std::byte* at = group + UnitOffset(format, static_cast<std::int64_t>(block), column);
    const std::int8_t* code = codes.data() + block;
    for (int k = 0; k < kBlockInputs; k += unit_inputs) {
      std::byte bytes[4];
      for (int b = 0; b < 4; ++b) {
        if (unit_inputs == 4) {
          bytes[b] = static_cast<std::byte>(code[k + b]);
        } else {
          seen |= code[k + b] | code[k + b + 4];
          bytes[b] = static_cast<std::byte>(code[k + b] | code[k + b + 4] << 4);
        }
      }
      std::memcpy(at, bytes, 4);
      at += kUnitBytes;
    }
  }
  if ((seen & ~15) != 0) return {.needs_offsets = false, .message = "a code is outside [0, 15]"};
  return {};
}

// Remembers the error of the lowest output, so that messages do not depend on threads.
class ErrorSink {
 public:
  void Add(std::int64_t output, const GroupError& error) {
    const std::lock_guard lock(mutex_);
    needs_offsets_ |= error.needs_offsets;
    if (error.message.empty() || (!message_.empty() && output > output_)) return;
    output_ = output;
    message_ = error.message;
  }
  bool needs_offsets() const { return needs_offsets_; }
  absl::Status status() const {
    if (message_.empty()) return absl::OkStatus();
    return InvalidArgument("row {}: {}", output_, message_);
  }

 private:
  std::mutex mutex_;
  bool needs_offsets_ = false;
  std::int64_t output_ = 0;
  std::string message_;
};

// Packs row `from` as column `column` of `group`.
GroupError PackRow(PackedFormat format, SourceRow from, int column, RowBuffers& buffers,
                   std::byte* group) {
  if (BlockHeaderBytes(format) == 0) {
    from.source->ReadRow(from.row, buffers.values);
    PackFloats(format, buffers.values, column, group);
    return {};
  }
  from.source->ReadGroups(from.row, buffers.codes, buffers.scales, buffers.offsets);
  GroupError error = PackScales(format, buffers, column, group);
  return error.any() ? error : PackCodes(format, buffers.codes, column, group);
}

}  // namespace

PackedWeights::PackedWeights(WeightFormat format, PackedFormat packed_format, std::int32_t inputs,
                             std::int32_t outputs)
    : format_(format),
      packed_format_(packed_format),
      inputs_(inputs),
      outputs_(outputs),
      group_bytes_(GroupBytes(packed_format, inputs)) {}

absl::StatusOr<std::unique_ptr<PackedWeights>> PackedWeights::Pack(
    std::span<const MatrixSource* const> sources, WeightFormat format, ThreadPool& pool) {
  QUIRE_RETURN_IF_ERROR(CheckSources(sources, format));
  const std::int64_t inputs = sources[0]->cols();
  std::int64_t outputs = 0;
  for (const MatrixSource* source : sources) outputs += source->rows();

  std::vector<RowBuffers> buffers(static_cast<std::size_t>(pool.num_threads()));
  for (const bool offsets : {false, true}) {
    const PackedFormat packed = PackedFormatOf(format, offsets);
    std::unique_ptr<PackedWeights> weights(new PackedWeights(
        format, packed, static_cast<std::int32_t>(inputs), static_cast<std::int32_t>(outputs)));
    QUIRE_ASSIGN_OR_RETURN(weights->buffer_,
                           AlignedBuffer::Allocate(static_cast<std::size_t>(weights->num_groups() *
                                                                            weights->group_bytes_) +
                                                   kPackedSlack));
    ErrorSink errors;
    pool.ParallelFor(weights->num_groups(), [&](std::int64_t g, int worker) {
      RowBuffers& mine = buffers[static_cast<std::size_t>(worker)];
      mine.values.resize(static_cast<std::size_t>(inputs));
      mine.codes.resize(static_cast<std::size_t>(inputs));
      mine.scales.resize(static_cast<std::size_t>(inputs / kBlockInputs));
      mine.offsets.resize(static_cast<std::size_t>(inputs / kBlockInputs));
      std::byte* group = weights->buffer_.data() + g * weights->group_bytes_;
      const auto columns =
          static_cast<int>(std::min<std::int64_t>(kGroupColumns, outputs - g * kGroupColumns));
      for (int c = 0; c < columns; ++c) {
        const std::int64_t output = g * kGroupColumns + c;
        const GroupError error = PackRow(packed, FindRow(sources, output), c, mine, group);
        if (error.any()) return errors.Add(output, error);
      }
    });
    QUIRE_RETURN_IF_ERROR(errors.status());
    if (!errors.needs_offsets()) return weights;
  }
  return Internal("int8 offsets were lost while packing");
}

void PackedWeights::UnpackRow(std::int32_t row, float* out) const {
  const std::byte* group = data() + row / kGroupColumns * group_bytes_;
  const int column = row % kGroupColumns;
  const int unit_inputs = UnitInputs(packed_format_);
  const bool offsets = BlockHeaderBytes(packed_format_) > kScalesBytes;
  float scale = 0;
  float offset = 0;
  for (std::int32_t k = 0; k < inputs_; ++k) {
    const std::byte* at = group + UnitOffset(packed_format_, k, column);
    const int within = k % unit_inputs;
    if (BlockHeaderBytes(packed_format_) > 0 && k % kBlockInputs == 0) {
      std::uint16_t bits[2] = {};
      const std::byte* header = group + ScaleOffset(packed_format_, k, column);
      std::memcpy(&bits[0], header, 2);
      if (offsets) std::memcpy(&bits[1], header + kScalesBytes, 2);
      scale = F16ToF32(bits[0]);
      offset = F16ToF32(bits[1]);
    }
    switch (packed_format_) {
      case PackedFormat::kF32:
        std::memcpy(out + k, at, 4);
        break;
      case PackedFormat::kBf16: {
        std::uint16_t bits = 0;
        std::memcpy(&bits, at + within * 2, 2);
        out[k] = Bf16ToF32(bits);
        break;
      }
      // scale * code is exact in f32 (11 + 8 bits), so this rounds once, as the kernels do.
      case PackedFormat::kInt8:
      case PackedFormat::kInt8Offset:
        out[k] = scale * static_cast<float>(static_cast<std::int8_t>(at[within])) + offset;
        break;
      case PackedFormat::kInt4Offset: {
        const auto byte = static_cast<unsigned>(at[within % 4]);
        out[k] = scale * static_cast<float>(within < 4 ? byte & 15 : byte >> 4) + offset;
        break;
      }
    }
  }
}

}  // namespace quire::kernels::cpu
