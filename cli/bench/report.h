// What a load test found, as a table and as JSON with the keys of `vllm bench serve`.
//
// Definitions. TTFT: from when a request was due to its first token. TPOT: (last - first token) /
// (tokens - 1), with the token count from the server's usage; answers of one token have none. ITL:
// between two messages with tokens. E2EL: from when it was due to its final status. Only requests
// that succeeded count (RequestRecord::succeeded); percentiles are nearest-rank over all of them.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "cli/bench/load.h"
#include "cli/bench/statistics.h"
#include "cli/table.h"

namespace quire::cli::bench {

// What the test was; printed with its results.
struct BenchSettings {
  std::string date;  // "20260131-142500", UTC
  std::string model_id;
  std::string workload;
  double request_rate = 0;  // 0: closed loop.
  std::int32_t max_concurrency = 0;
  std::int32_t num_prompts = 0;
  std::uint64_t seed = 0;
};

// What the server said meanwhile.
struct ServerSide {
  std::int64_t peak_kv_blocks = 0;  // Active, of `kv_blocks_capacity`.
  std::int64_t kv_blocks_capacity = 0;
  std::int64_t preemptions = 0;
  std::int64_t peak_requests = 0;  // Running and queued.
  std::int64_t num_samples = 0;
};

struct Failures {
  std::int64_t count = 0;
  std::string first_message;
  bool operator==(const Failures&) const = default;
};

struct BenchReport {
  BenchSettings settings;
  ServerSide server;
  double duration_s = 0;
  std::int64_t completed = 0, failed = 0;
  std::map<std::string, Failures> errors = {};  // By status code, or INCOMPLETE.
  std::int64_t total_input_tokens = 0, total_cached_tokens = 0, total_output_tokens = 0;
  std::int64_t max_output_tokens_per_s = 0;  // In whole seconds from the start.
  std::int32_t max_concurrent_requests = 0;
  double achieved_request_rate = 0;  // Sent per second, while sending.
  double max_send_delay_ms = 0;      // How late this tool sent a request at worst.
  Summary ttft_ms = {}, tpot_ms = {}, itl_ms = {}, e2el_ms = {};
};

BenchReport MakeReport(const BenchSettings& settings, const LoadResult& load,
                       const ServerSide& server);
// "errors": how many by code, and "error_messages": the first of each.
void AddErrors(const BenchReport& report, nlohmann::ordered_json* object);
// The same as rows of a table of two columns.
void AddErrors(const BenchReport& report, Table* table);
nlohmann::ordered_json ReportJson(const BenchReport& report);
void PrintReport(const BenchReport& report, std::ostream& out);

}  // namespace quire::cli::bench
