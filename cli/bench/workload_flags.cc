#include "cli/bench/workload_flags.h"

#include "cli/flags.h"

namespace quire::cli::bench {

void AddWorkloadFlags(CLI::App& app, std::vector<std::pair<std::string, WorkloadKind>> kinds,
                      WorkloadOptions* workload) {
  AddChoice<WorkloadKind>(app, "--workload", &workload->kind, std::move(kinds),
                          "what is asked for; sharegpt and alpaca have lengths of their own");
  AddInt(app, "--num-prompts", &workload->num_prompts, {1, 10'000'000}, "requests to send");
  AddInt(app, "--input-len", &workload->input_len, {1, 1 << 20}, "tokens of a prompt");
  AddInt(app, "--output-len", &workload->output_len, {1, 1 << 20}, "tokens of an answer");
  AddDouble(app, "--range-ratio", &workload->range_ratio, 0, 1,
            "random, shared-prefix: both lengths vary by up to this share");
  AddInt(app, "--prefix-len", &workload->prefix_len, {1, 1 << 20},
         "shared-prefix: tokens before those of --input-len");
  AddInt(app, "--num-prefixes", &workload->num_prefixes, {1, 1 << 20},
         "shared-prefix: different prefixes");
  AddSeed(app, &workload->seed, "of prompts and arrivals");
}

void AddSeed(CLI::App& app, std::uint64_t* seed, const std::string& help) {
  AddParsed<std::uint64_t>(
      app, "--seed", [](const std::string& text) { return ParseUint(text); },
      [seed](std::uint64_t value) { *seed = value; }, help, "N")
      ->default_str("0");
}

}  // namespace quire::cli::bench
