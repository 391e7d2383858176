// Copy the content of block `source` to block `target`, in every layer, before the step writes
// anything: the order that copy-on-write leaves for the runner.
#pragma once

#include "base/ids.h"

namespace quire::block_manager {

struct CopyOrder {
  BlockId source;
  BlockId target;
  friend bool operator==(const CopyOrder&, const CopyOrder&) = default;
};

}  // namespace quire::block_manager
