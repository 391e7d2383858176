// The flags that shape a workload, of every `quire bench` command that has one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/workload.h"

namespace quire::cli::bench {

// `kinds` are the words that --workload takes.
void AddWorkloadFlags(CLI::App& app, std::vector<std::pair<std::string, WorkloadKind>> kinds,
                      WorkloadOptions* workload);
void AddSeed(CLI::App& app, std::uint64_t* seed, const std::string& help);

}  // namespace quire::cli::bench
