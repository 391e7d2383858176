#include "cli/bench/throughput_report.h"

#include <fmt/format.h>

#include "cli/table.h"
#include "cli/units.h"

namespace quire::cli::bench {
namespace {

using nlohmann::ordered_json;

std::int64_t TotalTokens(const BenchReport& report) {
  return report.total_input_tokens + report.total_output_tokens;
}

double PerSecond(const BenchReport& report, std::int64_t count) {
  return report.duration_s > 0 ? static_cast<double>(count) / report.duration_s : 0;
}

}  // namespace

ordered_json ThroughputJson(const BenchReport& report, const BlockUsage& usage) {
  ordered_json object;
  object["elapsed_time"] = report.duration_s;
  object["num_requests"] = report.completed;
  object["total_num_tokens"] = TotalTokens(report);
  object["requests_per_second"] = PerSecond(report, report.completed);
  object["tokens_per_second"] = PerSecond(report, TotalTokens(report));

  object["date"] = report.settings.date;
  object["model_id"] = report.settings.model_id;
  object["label"] = report.settings.workload;
  object["seed"] = report.settings.seed;
  object["failed"] = report.failed;
  AddErrors(report, &object);
  object["total_input_tokens"] = report.total_input_tokens;
  object["total_cached_tokens"] = report.total_cached_tokens;
  object["total_output_tokens"] = report.total_output_tokens;
  object["output_tokens_per_second"] = PerSecond(report, report.total_output_tokens);
  object["mean_ttft_ms"] = report.ttft_ms.mean;
  object["mean_tpot_ms"] = report.tpot_ms.mean;

  object["kv_blocks_capacity"] = usage.capacity;
  object["kv_block_size"] = usage.block_size;
  object["kv_bytes_per_block"] = usage.bytes_per_block;
  object["mean_kv_blocks"] = usage.mean_reserved_blocks;
  object["peak_kv_blocks"] = usage.peak_active_blocks;
  object["kv_useful_share"] = usage.useful_share();
  object["mean_batch"] = usage.mean_batch;
  object["computed_tokens"] = usage.computed_tokens;
  object["prefix_hit_tokens"] = usage.prefix_hit_tokens;
  object["preemptions"] = usage.preemptions;
  object["recomputed_tokens"] = usage.recomputed_tokens;
  object["evictions"] = usage.evictions;
  return object;
}

void PrintThroughput(const BenchReport& report, const BlockUsage& usage, std::ostream& out) {
  Table facts({{""}, {""}});
  facts.AddRow(
      {"load", fmt::format("{}, seed {}", report.settings.workload, report.settings.seed)});
  facts.AddRow({"requests", fmt::format("{} completed, {} failed", FormatCount(report.completed),
                                        FormatCount(report.failed))});
  AddErrors(report, &facts);
  facts.AddRow({"duration", fmt::format("{:.2f} s", report.duration_s)});
  facts.AddRow(
      {"tokens", fmt::format("{} in ({} cached), {} out", FormatCount(report.total_input_tokens),
                             FormatCount(report.total_cached_tokens),
                             FormatCount(report.total_output_tokens))});
  facts.AddRow(
      {"throughput",
       fmt::format("{:.2f} requests/s, {:.1f} tokens/s, of these {:.1f} output",
                   PerSecond(report, report.completed), PerSecond(report, TotalTokens(report)),
                   PerSecond(report, report.total_output_tokens))});
  facts.AddRow({"batch", fmt::format("{:.1f} requests in a step on average", usage.mean_batch)});
  facts.AddRow({"KV blocks",
                fmt::format("{:.1f} of {} on average, {} at most", usage.mean_reserved_blocks,
                            FormatCount(usage.capacity), FormatCount(usage.peak_active_blocks))});
  facts.AddRow({"KV useful", fmt::format("{:.1f} % of their slots", 100 * usage.useful_share())});
  facts.AddRow({"computed", fmt::format("{}, {} of them again after {}",
                                        Counted(usage.computed_tokens, "token"),
                                        FormatCount(usage.recomputed_tokens),
                                        Counted(usage.preemptions, "preemption"))});
  facts.Print(out);
}

}  // namespace quire::cli::bench
