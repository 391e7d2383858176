#define QUIRE_ISA_NAMESPACE avx512

#include "kernels/cpu/elementwise_kernels.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/linear_kernels.h"

namespace quire::kernels::cpu {

const IsaTable kAvx512Table = {
    .linear = {avx512::LinearGroups<avx512::F32Weights>, avx512::LinearGroups<avx512::Bf16Weights>,
               avx512::LinearGroups<avx512::Int8Weights<false>>,
               avx512::LinearGroups<avx512::Int8Weights<true>>,
               avx512::LinearGroups<avx512::Int4Weights>},
    .rms_norm = avx512::RmsNorm,
    .silu_gate = avx512::SiluGate,
    .gelu_tanh_gate = avx512::GeluTanhGate,
};

}  // namespace quire::kernels::cpu
