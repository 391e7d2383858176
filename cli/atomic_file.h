// Writing a small file so that nobody ever sees half of it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire::cli {

// Writes to a temporary file beside `path` and renames it there. Errors name the path.
absl::Status WriteFileAtomically(const std::string& path, std::string_view content);

// The whole file; NOT_FOUND or another error naming the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace quire::cli
