// Typed reading of a JSON object from a model folder: every problem names the file and the key.
//
// Errors are collected: getters return a fallback after a failure, and status() tells the first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace quire::engine::model {

// Parses a file that must hold one JSON object of at most 16 MiB.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path);

class JsonReader {
 public:
  // `object` must outlive the reader. `prefix` is put before keys in messages ("rope_scaling.").
  JsonReader(std::string path, const nlohmann::json& object, std::string prefix = "")
      : path_(std::move(path)), prefix_(std::move(prefix)), object_(object) {}

  const absl::Status& status() const { return status_; }
  const std::string& path() const { return path_; }
  void Fail(absl::Status status);

  // The member, or null when it is absent or JSON null.
  const nlohmann::json* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  std::optional<std::int64_t> OptionalInteger(std::string_view key, std::int64_t min,
                                              std::int64_t max);
  std::int32_t Integer(std::string_view key, std::int32_t min, std::int32_t max);  // Required.
  std::int32_t IntegerOr(std::string_view key, std::int32_t fallback, std::int32_t min,
                         std::int32_t max);
  std::optional<double> OptionalNumber(std::string_view key);  // Finite.
  double NumberOr(std::string_view key, double fallback);
  bool BooleanOr(std::string_view key, bool fallback);
  std::string TextOr(std::string_view key, std::string_view fallback);

 private:
  absl::Status BadType(std::string_view key, std::string_view wanted) const;

  const std::string path_, prefix_;
  const nlohmann::json& object_;
  absl::Status status_;
};

}  // namespace quire::engine::model
