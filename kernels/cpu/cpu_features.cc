#include "kernels/cpu/cpu_features.h"

#include <cpuid.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "base/status.h"
#include "kernels/cpu/cgroup_quota.h"

namespace quire::kernels::cpu {
namespace {

// Bits of XCR0: what the operating system saves on a context switch.
constexpr std::uint64_t kXcr0Avx = 0x6;      // XMM, YMM
constexpr std::uint64_t kXcr0Avx512 = 0xe6;  // + opmask, upper ZMM, ZMM16-31

std::uint64_t ReadXcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

bool HasAll(std::uint32_t value, std::uint32_t bits) { return (value & bits) == bits; }

std::string Names(const std::vector<IsaLevel>& levels) {
  std::string names;
  for (const IsaLevel level : levels) {
    if (!names.empty()) names += ", ";
    names += IsaName(level);
  }
  return names.empty() ? "none" : names;
}

int AffinityCpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) return CPU_COUNT(&mask);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::string_view IsaName(IsaLevel level) {
  switch (level) {
    case IsaLevel::kAvx2:
      return "avx2";
    case IsaLevel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

CpuidBits ReadCpuid() {
  CpuidBits bits;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  std::uint32_t d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) bits.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) bits.leaf7_ebx = b;
  if (HasAll(bits.leaf1_ecx, bit_OSXSAVE)) bits.xcr0 = ReadXcr0();
  return bits;
}

std::vector<IsaLevel> LevelsOf(const CpuidBits& bits) {
  std::vector<IsaLevel> levels;
  if ((bits.xcr0 & kXcr0Avx) != kXcr0Avx ||
      !HasAll(bits.leaf1_ecx, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C) ||
      !HasAll(bits.leaf7_ebx, bit_AVX2)) {
    return levels;
  }
  levels.push_back(IsaLevel::kAvx2);
  if ((bits.xcr0 & kXcr0Avx512) == kXcr0Avx512 &&
      HasAll(bits.leaf7_ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL)) {
    levels.push_back(IsaLevel::kAvx512);
  }
  return levels;
}

std::vector<IsaLevel> SupportedIsaLevels() { return LevelsOf(ReadCpuid()); }

absl::StatusOr<IsaLevel> SelectIsa(std::string_view name) {
  const std::vector<IsaLevel> supported = SupportedIsaLevels();
  if (supported.empty()) {
    return FailedPrecondition("this processor (or its operating system) lacks AVX2, FMA or F16C");
  }
  if (name.empty()) return supported.back();
  const std::vector<IsaLevel> known = {IsaLevel::kAvx2, IsaLevel::kAvx512};
  for (const IsaLevel level : known) {
    if (IsaName(level) != name) continue;
    if (std::find(supported.begin(), supported.end(), level) != supported.end()) return level;
    return FailedPrecondition("isa {} is not available on this machine, which has: {}", name,
                              Names(supported));
  }
  return InvalidArgument("unknown isa \"{}\"; known: {}", name, Names(known));
}

int UsableCpus() {
  int cpus = AffinityCpus();
  if (const std::optional<int> quota = CgroupCpuQuota("/proc/self/cgroup", "/sys/fs/cgroup")) {
    cpus = std::min(cpus, *quota);
  }
  return std::max(cpus, 1);
}

}  // namespace quire::kernels::cpu
