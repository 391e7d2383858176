// What a simulation found, as figures, as JSON and as a table.
//
// Times are the simulated ones. TTFT, queueing, latency and TPOT are those of quire bench serve;
// only requests that finished count, and percentiles are nearest-rank.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/statistics.h"
#include "simulator/paper.h"
#include "simulator/simulation.h"

namespace quire::cli::simulate {

struct SystemSummary {
  std::string system;
  simulator::SimulationResult result;
  std::int64_t num_requests = 0, finished = 0, ended_early = 0, refused = 0;
  std::int64_t output_tokens = 0;
  double duration_s = 0;
  double hit_rate = 0;                   // Of the prompt tokens of first admissions.
  double mean_normalized_latency_s = 0;  // Latency over the tokens of an answer.
  bench::Summary ttft_ms, queue_ms, tpot_ms, latency_ms;
  std::vector<double> ttft_s, latency_s;  // Of the finished requests, ascending.
};

SystemSummary Summarize(std::string system, std::span<const simulator::Request> workload,
                        simulator::SimulationResult result);

nlohmann::ordered_json SummaryJson(const SystemSummary& summary);
void PrintSummaries(std::span<const SystemSummary> summaries, std::ostream& out);

nlohmann::ordered_json PaperRowJson(const simulator::PaperRow& row);
void PrintPaperRows(std::span<const simulator::PaperRow> rows, std::ostream& out);

}  // namespace quire::cli::simulate
