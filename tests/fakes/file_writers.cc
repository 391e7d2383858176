#include "tests/fakes/file_writers.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "kernels/math.h"
#include "nlohmann/json.hpp"

namespace quire::fakes {
namespace {

constexpr std::size_t kGroup = 32;

std::string String(std::string_view text) {
  return Bytes<std::uint64_t>(text.size()) + std::string(text);
}

std::string Half(float value) { return Bytes(kernels::F32ToF16(value)); }

std::string EncodeQ8(std::span<const float> group) {
  float largest = 0;
  for (const float value : group) largest = std::max(largest, std::abs(value));
  const float scale = kernels::F16ToF32(kernels::F32ToF16(largest / 127));
  std::string bytes = Half(scale);
  for (const float value : group) {
    const float code = scale == 0 ? 0 : std::clamp(std::round(value / scale), -127.0F, 127.0F);
    bytes += Bytes(static_cast<std::int8_t>(code));
  }
  return bytes;
}

std::string EncodeQ4(std::span<const float> group, bool has_minimum) {
  const auto [low, high] = std::minmax_element(group.begin(), group.end());
  const float largest = std::max(std::abs(*low), std::abs(*high));
  const float step = has_minimum ? (*high - *low) / 15 : largest / 7;
  const float scale = kernels::F16ToF32(kernels::F32ToF16(step));
  const float minimum = has_minimum ? kernels::F16ToF32(kernels::F32ToF16(*low)) : -8 * scale;
  std::array<unsigned, kGroup> codes{};
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float code = scale == 0 ? 0 : std::round((group[i] - minimum) / scale);
    codes[i] = static_cast<unsigned>(std::clamp(code, 0.0F, 15.0F));
  }
  std::string bytes = Half(scale);
  if (has_minimum) bytes += Half(minimum);
  for (std::size_t i = 0; i < kGroup / 2; ++i) {
    bytes += static_cast<char>(codes[i] | codes[i + kGroup / 2] << 4U);
  }
  return bytes;
}

}  // namespace

std::string EncodeTensor(std::string_view type, std::span<const float> values) {
  std::string bytes;
  if (type == "F32" || type == "F16" || type == "BF16") {
    for (const float value : values) {
      bytes += type == "F32"   ? Bytes(value)
               : type == "F16" ? Half(value)
                               : Bytes(kernels::F32ToBf16(value));
    }
    return bytes;
  }
  QUIRE_CHECK(type == "Q8_0" || type == "Q4_0" || type == "Q4_1") << type;
  QUIRE_CHECK(values.size() % kGroup == 0) << values.size();
  for (std::size_t begin = 0; begin < values.size(); begin += kGroup) {
    const auto group = values.subspan(begin, kGroup);
    bytes += type == "Q8_0" ? EncodeQ8(group) : EncodeQ4(group, type == "Q4_1");
  }
  return bytes;
}

std::uint32_t GgmlType(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, std::uint32_t>, 8> kTypes = {{{"F32", 0},
                                                                                 {"F16", 1},
                                                                                 {"Q4_0", 2},
                                                                                 {"Q4_1", 3},
                                                                                 {"Q8_0", 8},
                                                                                 {"Q6_K", 14},
                                                                                 {"F64", 28},
                                                                                 {"BF16", 30}}};
  for (const auto& [name, number] : kTypes) {
    if (name == type) return number;
  }
  QUIRE_CHECK(false) << type;
  return 0;
}

GgufWriter& GgufWriter::Raw(std::string_view key, std::uint32_t type, std::string_view bytes) {
  pairs_ += String(key) + Bytes(type) + std::string(bytes);
  ++num_pairs_;
  return *this;
}
GgufWriter& GgufWriter::Text(std::string_view key, std::string_view value) {
  return Raw(key, 8, String(value));
}
GgufWriter& GgufWriter::U32(std::string_view key, std::uint32_t value) {
  return Raw(key, 4, Bytes(value));
}
GgufWriter& GgufWriter::F32(std::string_view key, float value) { return Raw(key, 6, Bytes(value)); }
GgufWriter& GgufWriter::Bool(std::string_view key, bool value) {
  return Raw(key, 7, Bytes(static_cast<std::uint8_t>(value)));
}
GgufWriter& GgufWriter::Texts(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes = Bytes<std::uint32_t>(8) + Bytes<std::uint64_t>(values.size());
  for (const std::string& value : values) bytes += String(value);
  return Raw(key, 9, bytes);
}
GgufWriter& GgufWriter::I32s(std::string_view key, const std::vector<std::int32_t>& values) {
  std::string bytes = Bytes<std::uint32_t>(5) + Bytes<std::uint64_t>(values.size());
  for (const std::int32_t value : values) bytes += Bytes(value);
  return Raw(key, 9, bytes);
}

GgufWriter& GgufWriter::TensorInfo(std::string_view name, const std::vector<std::uint64_t>& shape,
                                   std::uint32_t type, std::uint64_t offset) {
  infos_ += String(name) + Bytes(static_cast<std::uint32_t>(shape.size()));
  for (auto it = shape.rbegin(); it != shape.rend(); ++it) infos_ += Bytes(*it);
  infos_ += Bytes(type) + Bytes(offset);
  ++num_tensors_;
  return *this;
}

GgufWriter& GgufWriter::Tensor(std::string_view name, const std::vector<std::uint64_t>& shape,
                               std::string_view type, std::string_view bytes) {
  TensorInfo(name, shape, GgmlType(type), data_.size());
  data_ += bytes;
  data_.resize((data_.size() + alignment - 1) / alignment * alignment);
  return *this;
}

std::string GgufWriter::Build(std::uint64_t num_tensors, std::uint64_t num_pairs) const {
  std::string file = "GGUF" + Bytes(version) + Bytes(num_tensors) + Bytes(num_pairs);
  file += pairs_ + infos_;
  file.resize((file.size() + alignment - 1) / alignment * alignment);
  return file + data_;
}

std::string BuildSafetensors(std::string_view header, std::string_view data) {
  return Bytes<std::uint64_t>(header.size()) + std::string(header) + std::string(data);
}

std::string BuildSafetensors(const std::vector<SafetensorsTensor>& tensors) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::size_t end = data.size() + tensor.bytes.size();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {data.size(), end}}};
    data += tensor.bytes;
  }
  return BuildSafetensors(header.dump(), data);
}

void WriteFile(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  QUIRE_CHECK(file.good()) << path;
}

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "quire_test_XXXXXX").string();
  QUIRE_CHECK(mkdtemp(name.data()) != nullptr) << name;
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace quire::fakes
