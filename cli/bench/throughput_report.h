// What `quire bench throughput` found, as a table and as JSON with the keys of `vllm bench
// throughput`.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/bench/block_usage.h"
#include "cli/bench/report.h"

namespace quire::cli::bench {

nlohmann::ordered_json ThroughputJson(const BenchReport& report, const BlockUsage& usage);
void PrintThroughput(const BenchReport& report, const BlockUsage& usage, std::ostream& out);

}  // namespace quire::cli::bench
