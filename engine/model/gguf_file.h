// The GGUF container (versions 2 and 3): typed metadata and a list of tensors, every count, length
// and offset checked before use. Knows nothing of any architecture.
//
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/file.h"
#include "engine/model/tensor.h"

namespace quire::engine::model {

// A metadata value. Integers of every width are int64 (a uint64 above that range is refused),
// floats double, arrays of them vectors.
using GgufValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

class GgufFile {
 public:
  static absl::StatusOr<GgufFile> Parse(std::shared_ptr<const File> file);

  const std::string& path() const { return file_->path(); }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  // The value of `key`; nullopt when the file has none; INVALID_ARGUMENT, naming file and key, when
  // it is of another kind. Integers are accepted as numbers.
  absl::StatusOr<std::optional<std::int64_t>> Integer(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;
  absl::StatusOr<std::optional<bool>> Boolean(std::string_view key) const;
  absl::StatusOr<std::optional<std::string>> Text(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<std::int64_t>>> Integers(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<std::string>>> Texts(std::string_view key) const;
  bool Has(std::string_view key) const { return metadata_.contains(key); }

 private:
  class Parser;
  template <class T>
  absl::StatusOr<std::optional<T>> Get(std::string_view key, std::string_view kind) const;

  std::shared_ptr<const File> file_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<StoredTensor> tensors_;  // In the file's order.
};

}  // namespace quire::engine::model
