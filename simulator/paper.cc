#include "simulator/paper.h"

#include "simulator/paper_rows.h"

namespace quire::simulator {

void RunPaperPreset(const PaperOptions& options,
                    const std::function<void(const PaperRow&)>& on_row) {
  PaperRows rows(options, on_row);
  rows.KvSizes();
  rows.MemoryAndBatches();
  rows.Throughput();
  rows.Forks();
  rows.SharedPrefixes();
  rows.BlockSizes();
  rows.RecomputeTax();
}

}  // namespace quire::simulator
