// Dense products of the CPU backend: cuts a product into items, hands them to the pool.
//
// Ownership: belongs to a CpuBackend, whose pool it uses. Thread: as Backend.
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/linear_input.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"

namespace quire::kernels::cpu {

class LinearOps {
 public:
  // Both outlive this object.
  LinearOps(const IsaTable& table, ThreadPool& pool);

  void Run(const PackedWeights& weights, const CpuLinearInput& input, Epilogue epilogue,
           MatrixView out);

 private:
  const IsaTable& table_;
  ThreadPool& pool_;
  AlignedBuffer scratch_;  // A LinearScratch per worker.
};

}  // namespace quire::kernels::cpu
