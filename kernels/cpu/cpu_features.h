// What this machine can run: instruction set levels (processor and operating system) and how many
// processors this process may use.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::kernels::cpu {

// A set of instructions that kernels are compiled for, weakest first. A level is offered only when
// cpuid lists every instruction of it and the operating system saves its registers (XCR0).
enum class IsaLevel {
  kAvx2,    // AVX2, FMA, F16C
  kAvx512,  // + AVX-512 F, BW, DQ, VL
};

std::string_view IsaName(IsaLevel level);  // "avx2", "avx512"

// What cpuid and the operating system say, before conclusions are drawn.
struct CpuidBits {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint64_t xcr0 = 0;  // 0 when the system does not let it be read.
};
CpuidBits ReadCpuid();

// Levels that a machine with these bits can run, weakest first.
std::vector<IsaLevel> LevelsOf(const CpuidBits& bits);

// Levels of this machine, weakest first; empty on a processor without AVX2.
std::vector<IsaLevel> SupportedIsaLevels();

// The level called `name`, or the best one when it is empty. INVALID_ARGUMENT when the name is
// unknown, FAILED_PRECONDITION when the machine lacks it; both messages list what there is.
absl::StatusOr<IsaLevel> SelectIsa(std::string_view name);

// Processors that this process may use at the same time: those of the affinity mask, but no more
// than the CPU quota of its cgroups (version 2 or 1) rounded up. At least 1.
int UsableCpus();

}  // namespace quire::kernels::cpu
