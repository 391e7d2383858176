#include "kernels/cpu/cgroup_quota.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

namespace quire::kernels::cpu {
namespace {

constexpr std::int64_t kMaxCpus = 1 << 20;

std::optional<int> WholeCpus(std::int64_t quota_us, std::int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return std::nullopt;
  return static_cast<int>(std::clamp((quota_us - 1) / period_us + 1, std::int64_t{1}, kMaxCpus));
}

// "max 100000" or "150000 100000".
std::optional<int> ReadVersion2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (!(file >> quota >> period)) return std::nullopt;
  return WholeCpus(quota, period);
}

std::optional<int> ReadVersion1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  return WholeCpus(quota, period);
}

// Whether `controllers`, a list such as "cpu,cpuacct", names the cpu controller.
bool ListsCpu(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

}  // namespace

std::optional<int> CgroupCpuQuota(const std::string& membership, const std::string& root) {
  std::ifstream file(membership);
  std::optional<int> smallest;
  // A line is hierarchy:controllers:/path; version 2 has hierarchy 0 and no controllers.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && !ListsCpu(controllers)) continue;
    const std::string mount = version2 ? root : root + "/cpu";
    std::string path = line.substr(second + 1);
    for (;;) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      const std::optional<int> quota =
          version2 ? ReadVersion2(mount + path) : ReadVersion1(mount + path);
      if (quota) smallest = smallest ? std::min(*smallest, *quota) : *quota;
      const std::size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return smallest;
}

}  // namespace quire::kernels::cpu
