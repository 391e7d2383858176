// Reading the compressed golden files of tests/golden.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace quire::engine::text {

// `name` is relative to tests/golden; .xz is unpacked.
std::string ReadGolden(const std::string& name);

// One object a line. Lines end with "\n" and nothing else: strings hold other separators.
std::vector<nlohmann::json> ReadGoldenLines(const std::string& name);

// A directory of its own, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void Write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

// Unpacks the files of a .tar.xz straight into `folder`, without its directories.
void UnpackGolden(const std::string& name, const TempFolder& folder);

}  // namespace quire::engine::text
