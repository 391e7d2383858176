#include "engine/model/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace quire::engine::model {
namespace {

absl::Status ErrnoStatus(const std::string& path, std::string_view action) {
  const int error = errno;
  const std::string message =
      fmt::format("{}: cannot {}: {}", path, action, std::generic_category().message(error));
  return error == ENOENT || error == ENOTDIR ? absl::NotFoundError(message)
                                             : absl::InvalidArgumentError(message);
}

}  // namespace

File::File(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

File::~File() { close(descriptor_); }

absl::StatusOr<std::shared_ptr<const File>> File::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer; it has no effect on regular files.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return ErrnoStatus(path, "open");
  std::shared_ptr<File> file(new File(path, descriptor));
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return ErrnoStatus(path, "stat");
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{}: not a regular file", path);
  file->size_ = static_cast<std::uint64_t>(info.st_size);
  file->modified_seconds_ = info.st_mtim.tv_sec;
  file->modified_nanoseconds_ = info.st_mtim.tv_nsec;
  return std::shared_ptr<const File>(std::move(file));
}

absl::Status File::CheckUnchanged() const {
  struct stat info {};
  if (fstat(descriptor_, &info) != 0) return ErrnoStatus(path_, "stat");
  if (static_cast<std::uint64_t>(info.st_size) == size_ &&
      info.st_mtim.tv_sec == modified_seconds_ && info.st_mtim.tv_nsec == modified_nanoseconds_) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      fmt::format("{}: changed while it was being read ({} bytes when opened, {} now)", path_,
                  size_, static_cast<std::uint64_t>(info.st_size)));
}

absl::Status File::ReadAt(std::uint64_t offset, std::span<std::byte> out,
                          std::string_view what) const {
  if (offset > size_ || out.size() > size_ - offset) {
    return absl::OutOfRangeError(
        fmt::format("{}: {} needs {} bytes at offset {}, but the file ends at {}", path_, what,
                    out.size(), offset, size_));
  }
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n =
        pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(path_, fmt::format("read {}", what));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return CheckUnchanged();
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, std::uint64_t max_bytes) {
  QUIRE_ASSIGN_OR_RETURN(const auto file, File::Open(path));
  if (file->size() > max_bytes) {
    return InvalidArgument("{}: {} bytes, more than the {} accepted", path, file->size(),
                           max_bytes);
  }
  std::string text(file->size(), '\0');
  QUIRE_RETURN_IF_ERROR(
      file->ReadAt(0, std::as_writable_bytes(std::span<char>(text)), "the content"));
  return text;
}

}  // namespace quire::engine::model
