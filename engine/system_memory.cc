#include "engine/system_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace quire::engine {
namespace {

// The number in a file's line "name: 123 kB" or "name 123"; `name` empty: the file's first word.
std::optional<std::int64_t> ReadNumber(const std::string& path, const std::string& name = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    std::int64_t number = 0;
    if (rest >> number) return number;
    return std::nullopt;
  }
  return std::nullopt;
}

// Narrows `memory` by the limit of one group.
void ApplyGroup(const std::string& folder, const std::string& limit_name,
                const std::string& usage_name, const std::string& reclaimable_name,
                SystemMemory& memory) {
  const auto limit = ReadNumber(folder + "/" + limit_name);
  if (!limit.has_value() || *limit <= 0 || *limit >= memory.total_bytes) return;
  memory.total_bytes = *limit;
  // The page cache counts as usage but gives way.
  const std::int64_t used = ReadNumber(folder + "/" + usage_name).value_or(0) -
                            ReadNumber(folder + "/memory.stat", reclaimable_name).value_or(0);
  memory.available_bytes =
      std::clamp(*limit - used, std::int64_t{0}, std::min(memory.available_bytes, *limit));
}

bool ListsMemory(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == "memory") return true;
  }
  return false;
}

}  // namespace

SystemMemory ReadSystemMemory(const std::string& proc, const std::string& cgroup) {
  constexpr std::int64_t kKib = 1024;
  SystemMemory memory{
      .total_bytes = ReadNumber(proc + "/meminfo", "MemTotal:").value_or(0) * kKib,
      .available_bytes = ReadNumber(proc + "/meminfo", "MemAvailable:").value_or(0) * kKib};
  std::ifstream file(proc + "/self/cgroup");
  // A line is hierarchy:controllers:/path; version 2 has no controllers. Limits of the groups
  // above count too.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    for (bool more = true; more;) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      if (controllers.empty()) {
        ApplyGroup(cgroup + path, "memory.max", "memory.current", "inactive_file ", memory);
      } else if (ListsMemory(controllers)) {
        ApplyGroup(cgroup + "/memory" + path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                   "total_inactive_file ", memory);
      }
      const std::size_t slash = path.rfind('/');
      more = slash != std::string::npos;
      if (more) path.resize(slash);
    }
  }
  return memory;
}

std::int64_t SteadyAvailableBytes(const SystemMemory& memory) {
  const std::int64_t step = memory.total_bytes / 8;
  if (step <= 0 || memory.available_bytes < step) return memory.available_bytes;
  return memory.available_bytes / step * step;
}

}  // namespace quire::engine
