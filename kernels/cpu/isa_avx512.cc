#include "kernels/cpu/isa_table.h"

namespace quire::kernels::cpu {

const IsaTable kAvx512Table = {.vector_floats = 16};

}  // namespace quire::kernels::cpu
