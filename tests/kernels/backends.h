// Every backend and instruction set level that this machine can run, for tests with one body over
// all of them.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace quire::kernels {

struct BackendCase {
  std::string isa;  // Empty: the reference backend.
  int threads = 1;

  std::unique_ptr<Backend> Make() const;
  std::string name() const;  // "reference", "avx2_2threads"
  friend std::ostream& operator<<(std::ostream& out, const BackendCase& backend) {
    return out << backend.name();
  }
};

std::vector<BackendCase> AllBackends();

// What a Norm, Attention or GatedActivation of any backend has put into row `row`.
std::vector<float> InputRow(const LinearInput& input, int row);

}  // namespace quire::kernels
