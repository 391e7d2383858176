#include "tests/engine/text/golden_files.h"

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <functional>
#include <memory>

#include "base/check.h"

namespace quire::engine::text {
namespace {

std::string GoldenPath(const std::string& name) {
  return std::string(QUIRE_TEST_DATA) + "/golden/" + name;
}

std::string ReadEntry(archive* reader) {
  std::string content;
  char buffer[1 << 16];
  la_ssize_t count = 0;
  while ((count = archive_read_data(reader, buffer, sizeof buffer)) > 0) {
    content.append(buffer, static_cast<std::size_t>(count));
  }
  EXPECT_EQ(count, 0) << archive_error_string(reader);
  return content;
}

// Calls `take(name, content)` for each file in an archive, or once for a plain compressed file.
void ReadArchive(const std::string& name,
                 const std::function<void(const std::string&, const std::string&)>& take) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> reader(archive_read_new(),
                                                                      archive_read_free);
  archive_read_support_filter_all(reader.get());
  archive_read_support_format_raw(reader.get());
  archive_read_support_format_tar(reader.get());
  ASSERT_EQ(archive_read_open_filename(reader.get(), GoldenPath(name).c_str(), 1 << 16), ARCHIVE_OK)
      << archive_error_string(reader.get());
  archive_entry* entry = nullptr;
  while (archive_read_next_header(reader.get(), &entry) == ARCHIVE_OK) {
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    take(archive_entry_pathname(entry), ReadEntry(reader.get()));
  }
}

}  // namespace

std::string ReadGolden(const std::string& name) {
  std::string content;
  ReadArchive(name, [&](const std::string&, const std::string& text) { content = text; });
  return content;
}

std::vector<nlohmann::json> ReadGoldenLines(const std::string& name) {
  std::vector<nlohmann::json> lines;
  const std::string content = ReadGolden(name);
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = content.find('\n', begin);
    lines.push_back(nlohmann::json::parse(content.substr(begin, end - begin)));
    begin = end + 1;
  }
  EXPECT_FALSE(lines.empty()) << name;
  return lines;
}

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "quire-test-XXXXXX").string();
  const char* made = mkdtemp(pattern.data());
  QUIRE_CHECK(made != nullptr) << pattern;
  path_ = made;
}

TempFolder::~TempFolder() { std::filesystem::remove_all(path_); }

void TempFolder::Write(const std::string& name, const std::string& content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
}

void UnpackGolden(const std::string& name, const TempFolder& folder) {
  ReadArchive(name, [&](const std::string& path, const std::string& content) {
    folder.Write(std::filesystem::path(path).filename().string(), content);
  });
}

}  // namespace quire::engine::text
