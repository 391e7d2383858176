#include "kernels/cpu/isa_table.h"

namespace quire::kernels::cpu {

const IsaTable kAvx2Table = {.vector_floats = 8};

}  // namespace quire::kernels::cpu
