// How many processors the control groups of this process allow it (containers: --cpus).
#pragma once

#include <optional>
#include <string>

namespace quire::kernels::cpu {

// Smallest quota / period of the process's group and all groups above it, rounded up to whole
// processors; nothing when there is no limit or none can be read. `membership` is the file that
// lists the groups ("/proc/self/cgroup"), `root` where they are mounted ("/sys/fs/cgroup"). Reads
// version 2 (cpu.max) and version 1 (cpu.cfs_quota_us).
std::optional<int> CgroupCpuQuota(const std::string& membership, const std::string& root);

}  // namespace quire::kernels::cpu
