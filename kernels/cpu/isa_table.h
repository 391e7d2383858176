// The kernels of one instruction set level, as plain function pointers. Each level is one
// translation unit with its own compiler flags, which must not emit any inline function that other
// translation units could share (the linker would keep either copy): no std:: templates there.
#pragma once

namespace quire::kernels::cpu {

struct IsaTable {
  int vector_floats;  // Floats of a vector register.
};

extern const IsaTable kAvx2Table;
extern const IsaTable kAvx512Table;

}  // namespace quire::kernels::cpu
