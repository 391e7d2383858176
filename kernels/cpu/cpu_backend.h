// The fast backend: packed weights, vector kernels chosen for this machine at start, a small thread
// pool. Activations are f32 everywhere.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace quire::kernels {

struct CpuBackendOptions {
  std::string isa;  // "avx2", "avx512"; empty: the best of this machine.
  int threads = 1;  // Workers, the calling thread included; cpu::UsableCpus() is a good choice.
};

// INVALID_ARGUMENT for an unknown isa or a thread count outside [1, 1024], FAILED_PRECONDITION for
// an isa that this machine lacks.
absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(const CpuBackendOptions& options);

}  // namespace quire::kernels
