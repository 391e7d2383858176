#include "tests/kernels/backends.h"

#include <utility>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/linear_input.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/reference_input.h"

namespace quire::kernels {

std::unique_ptr<Backend> BackendCase::Make() const {
  if (isa.empty()) return NewReferenceBackend();
  auto backend = NewCpuBackend({.isa = isa, .threads = threads});
  QUIRE_CHECK(backend.ok()) << backend.status().ToString();
  return *std::move(backend);
}

std::string BackendCase::name() const {
  if (isa.empty()) return "reference";
  return isa + "_" + std::to_string(threads) + (threads == 1 ? "thread" : "threads");
}

std::vector<BackendCase> AllBackends() {
  std::vector<BackendCase> cases = {{}};
  for (const cpu::IsaLevel level : cpu::SupportedIsaLevels()) {
    for (const int threads : {1, 2}) {
      cases.push_back({.isa = std::string(cpu::IsaName(level)), .threads = threads});
    }
  }
  return cases;
}

std::vector<float> InputRow(const LinearInput& input, int row) {
  const float* data = nullptr;
  if (const auto* fast = dynamic_cast<const cpu::CpuLinearInput*>(&input)) {
    data = fast->row(row);
  } else {
    data = dynamic_cast<const reference::ReferenceInput&>(input).row(row);
  }
  return {data, data + input.features()};
}

}  // namespace quire::kernels
