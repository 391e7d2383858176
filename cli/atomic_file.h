// Reading whole files, and writing them so that nobody ever sees half of one.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire::cli {

// Writes to a temporary file beside `path` and renames it there. Errors name the path.
absl::Status WriteFileAtomically(const std::string& path, std::string_view content);

// Whether that can work, as far as the folder of `path` tells; writes nothing.
absl::Status CheckWritable(const std::string& path);

// The whole file; NOT_FOUND or another error naming the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Something to read, which is standard input when its path is "-".
struct InputFile {
  std::string name;  // For messages.
  std::string content;
};
absl::StatusOr<InputFile> ReadInput(const std::string& path);

}  // namespace quire::cli
