#define QUIRE_ISA_NAMESPACE avx2

#include "kernels/cpu/elementwise_kernels.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/linear_kernels.h"

namespace quire::kernels::cpu {

const IsaTable kAvx2Table = {
    .linear = {avx2::LinearGroups<avx2::F32Weights>, avx2::LinearGroups<avx2::Bf16Weights>,
               avx2::LinearGroups<avx2::Int8Weights<false>>,
               avx2::LinearGroups<avx2::Int8Weights<true>>, avx2::LinearGroups<avx2::Int4Weights>},
    .rms_norm = avx2::RmsNorm,
    .silu_gate = avx2::SiluGate,
    .gelu_tanh_gate = avx2::GeluTanhGate,
};

}  // namespace quire::kernels::cpu
