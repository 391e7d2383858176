#include "cli/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/status.h"

namespace quire::cli {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

}  // namespace

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

absl::Status CheckWritable(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return FailedPrecondition("cannot write {}: it is a folder", path);
  }
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return FailedPrecondition("cannot write {}: {}", path, std::strerror(errno));
}

absl::StatusOr<InputFile> ReadInput(const std::string& path) {
  const bool is_stdin = path == "-";
  QUIRE_ASSIGN_OR_RETURN(std::string content, ReadFile(is_stdin ? "/dev/stdin" : path));
  return InputFile{.name = is_stdin ? "stdin" : path, .content = std::move(content)};
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidArgument("cannot read {}: it is a folder", path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("cannot read {}: {}", path, std::strerror(errno));
  std::string content;
  std::string part(std::size_t{1} << 16, '\0');
  do {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    content.append(part, 0, static_cast<std::size_t>(file.gcount()));
    if (content.size() > kMaxFileBytes) {
      return InvalidArgument("cannot read {}: it has more than {} bytes", path, kMaxFileBytes);
    }
  } while (file);
  if (!file.eof()) return NotFound("cannot read {}: {}", path, std::strerror(errno));
  return content;
}

}  // namespace quire::cli
