// The oracle: every operation as plain loops in the order of its formula, accumulated in double,
// weights kept as f32. One thread, no vector code, same bits on every machine. Slow, and meant to
// be read.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace quire::kernels {

std::unique_ptr<Backend> NewReferenceBackend();

}  // namespace quire::kernels
