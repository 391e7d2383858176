#include "cli/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/status.h"

namespace quire::cli {

absl::Status WriteFileAtomically(const std::string& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.flush();
    if (!file) {
      const int error = errno;
      std::remove(temporary.c_str());
      return FailedPrecondition("cannot write {}: {}", path, std::strerror(error));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    return FailedPrecondition("cannot write {}: {}", path, std::strerror(error));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidArgument("cannot read {}: it is a folder", path);
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (file) content << file.rdbuf();
  if (!file || file.bad()) return NotFound("cannot read {}: {}", path, std::strerror(errno));
  return std::move(content).str();
}

}  // namespace quire::cli
