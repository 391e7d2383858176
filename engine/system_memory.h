// How much memory this process may use, from /proc and its control groups.
//
// Thread: any.
#pragma once

#include <cstdint>
#include <string>

namespace quire::engine {

struct SystemMemory {
  std::int64_t total_bytes = 0;      // The machine's, or the smallest limit of its groups.
  std::int64_t available_bytes = 0;  // Of that, what could be allocated now without swapping.
};

// Zeros when nothing can be read. `proc` and `cgroup` are "/proc" and "/sys/fs/cgroup"; reads
// cgroup version 2 (memory.max, memory.current) and 1 (memory.limit_in_bytes, …).
SystemMemory ReadSystemMemory(const std::string& proc, const std::string& cgroup);

// `memory.available_bytes`, rounded down to a whole number of eighths of the total: what other
// processes take or free in the meantime should not give every start another pool.
std::int64_t SteadyAvailableBytes(const SystemMemory& memory);

}  // namespace quire::engine
