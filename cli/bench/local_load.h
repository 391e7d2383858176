// Runs a workload on an engine in this process and measures it.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench/block_usage.h"
#include "cli/bench/load.h"
#include "cli/bench/request_target.h"
#include "cli/bench/workload.h"
#include "cli/target.h"

namespace quire::cli::bench {

struct LocalLoadOptions {
  WorkloadOptions workload = {};  // vocab_size and max_model_len are filled in.
  std::int32_t max_concurrency = 0;
  RequestTargetOptions requests = {};
};

struct LocalLoad {
  LoadResult load;
  BlockUsage usage = {};
  std::vector<std::vector<TokenId>> answers = {};
};

absl::StatusOr<LocalLoad> RunLocalLoad(
    LocalTarget& target, LocalLoadOptions options,
    const std::function<void(std::int32_t done, std::int32_t total)>& on_progress);

// One short request, whose tokens no workload of that seed has, so that threads are up and the
// model's pages are in memory.
absl::Status WarmUp(LocalTarget& target, std::uint64_t seed);

}  // namespace quire::cli::bench
