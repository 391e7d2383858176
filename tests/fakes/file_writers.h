// Writers of model files for tests: GGUF and safetensors built piece by piece, so that a test can
// also write what no honest writer would.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::fakes {

// `values` as a file stores them. `type` is a GGUF name: F32, F16, BF16, Q8_0, Q4_0, Q4_1 (the
// group types need a multiple of 32 values and choose scales by the groups' extremes).
std::string EncodeTensor(std::string_view type, std::span<const float> values);

// The number that GGUF has for a type name.
std::uint32_t GgmlType(std::string_view type);

class GgufWriter {
 public:
  GgufWriter& Text(std::string_view key, std::string_view value);
  GgufWriter& U32(std::string_view key, std::uint32_t value);
  GgufWriter& F32(std::string_view key, float value);
  GgufWriter& Bool(std::string_view key, bool value);
  GgufWriter& Texts(std::string_view key, const std::vector<std::string>& values);
  GgufWriter& I32s(std::string_view key, const std::vector<std::int32_t>& values);
  // A pair whose value bytes (after the type number) are given.
  GgufWriter& Raw(std::string_view key, std::uint32_t type, std::string_view bytes);

  // `shape` outermost first. The offset follows the tensor before it.
  GgufWriter& Tensor(std::string_view name, const std::vector<std::uint64_t>& shape,
                     std::string_view type, std::string_view bytes);
  // Only the description, with any type number and data offset.
  GgufWriter& TensorInfo(std::string_view name, const std::vector<std::uint64_t>& shape,
                         std::uint32_t type, std::uint64_t offset);

  // The file. The counts in its header can be made to lie.
  std::string Build() const { return Build(num_tensors_, num_pairs_); }
  std::string Build(std::uint64_t num_tensors, std::uint64_t num_pairs) const;

  std::uint32_t version = 3;
  std::uint32_t alignment = 32;  // Used for offsets; not written as a key.

 private:
  std::string pairs_, infos_, data_;
  std::uint64_t num_pairs_ = 0, num_tensors_ = 0;
};

struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
std::string BuildSafetensors(const std::vector<SafetensorsTensor>& tensors);
// The length, any header text, any data.
std::string BuildSafetensors(std::string_view header, std::string_view data);

// Little-endian bytes of an integer or float.
template <class T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

void WriteFile(const std::string& path, std::string_view content);

// A folder of its own, removed with everything in it when the object goes.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

}  // namespace quire::fakes
