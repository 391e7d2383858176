// The parts of the paper preset; each reports its rows.
#pragma once

#include <functional>

#include "simulator/paper.h"
#include "simulator/rate_search.h"
#include "simulator/workload.h"

namespace quire::simulator {

class PaperRows {
 public:
  PaperRows(const PaperOptions& options, std::function<void(const PaperRow&)> on_row)
      : options_(options), on_row_(std::move(on_row)) {}

  void KvSizes();
  // Useful share of the memory and requests batched, in the middle of an overload.
  void MemoryAndBatches();
  void Throughput();
  void Forks();
  void SharedPrefixes();
  void BlockSizes();
  void RecomputeTax();

 private:
  void Report(PaperRow row) const { on_row_(row); }
  RateSearchOptions Search() const;
  std::int32_t Scaled(std::int32_t num_requests) const;
  WorkloadOptions Shape(const std::string& name, std::int32_t num_requests) const;
  void ForkRow(const std::string& shape, std::int32_t n, bool mean_lengths);
  void SharedPrefixRows(const std::string& name, std::int32_t prefix_len, double paper);

  const PaperOptions options_;
  const std::function<void(const PaperRow&)> on_row_;
};

}  // namespace quire::simulator
