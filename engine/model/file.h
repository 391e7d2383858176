// A model file opened for reading. Bytes are copied out with pread, never mapped: a file that is
// cut or rewritten while it is read gives an error, where a mapping would end the process
// (SIGBUS) or hand out the new bytes.
//
// Thread: immutable after Open; ReadAt may be called from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire::engine::model {

class File {
 public:
  // Regular files only (a symbolic link to one is followed).
  static absl::StatusOr<std::shared_ptr<const File>> Open(const std::string& path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }

  // Fills all of `out` from `offset`. OUT_OF_RANGE, naming `what`, when the file ends before that;
  // DATA_LOSS when the file has changed since Open.
  absl::Status ReadAt(std::uint64_t offset, std::span<std::byte> out, std::string_view what) const;

 private:
  File(std::string path, int descriptor);
  // DATA_LOSS when size or modification time are no longer those seen by Open.
  absl::Status CheckUnchanged() const;

  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
  std::int64_t modified_seconds_ = 0, modified_nanoseconds_ = 0;
};

// The whole of a small text file. INVALID_ARGUMENT when it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, std::uint64_t max_bytes);

}  // namespace quire::engine::model
