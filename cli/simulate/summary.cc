#include "cli/simulate/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/table.h"
#include "cli/units.h"

namespace quire::cli::simulate {
namespace {

using nlohmann::ordered_json;
using simulator::RequestOutcome;

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

double PerSecond(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

void AddMetric(const std::string& name, const bench::Summary& summary, ordered_json* object) {
  (*object)["mean_" + name] = summary.mean;
  (*object)["median_" + name] = summary.p50;
  (*object)["p90_" + name] = summary.p90;
  (*object)["p99_" + name] = summary.p99;
}

}  // namespace

SystemSummary Summarize(std::string system, std::span<const simulator::Request> workload,
                        simulator::SimulationResult result) {
  SystemSummary summary;
  summary.system = std::move(system);
  std::vector<double> ttft_ms, queue_ms, tpot_ms, latency_ms;
  for (std::size_t i = 0; i < result.requests.size(); ++i) {
    const RequestOutcome& outcome = result.requests[i];
    summary.output_tokens += outcome.output_tokens;
    if (outcome.end == RequestOutcome::End::kRefused) ++summary.refused;
    if (outcome.end == RequestOutcome::End::kEndedEarly) ++summary.ended_early;
    if (outcome.end != RequestOutcome::End::kFinished) continue;
    ++summary.finished;
    summary.ttft_s.push_back(outcome.ttft_s());
    summary.latency_s.push_back(outcome.latency_s());
    ttft_ms.push_back(1e3 * outcome.ttft_s());
    queue_ms.push_back(1e3 * outcome.queue_s());
    latency_ms.push_back(1e3 * outcome.latency_s());
    if (workload[i].output_len > 1) {
      tpot_ms.push_back(1e3 * (outcome.latency_s() - outcome.ttft_s()) /
                        (workload[i].output_len - 1));
    }
  }
  std::ranges::sort(summary.ttft_s);
  std::ranges::sort(summary.latency_s);
  summary.num_requests = std::ssize(result.requests);
  summary.duration_s = absl::ToDoubleSeconds(result.duration);
  summary.hit_rate = result.counters.prefix_query_tokens == 0
                         ? 0
                         : static_cast<double>(result.counters.prefix_hit_tokens) /
                               static_cast<double>(result.counters.prefix_query_tokens);
  summary.mean_normalized_latency_s = result.MeanNormalizedLatency(workload);
  summary.ttft_ms = bench::Summarize(std::move(ttft_ms));
  summary.queue_ms = bench::Summarize(std::move(queue_ms));
  summary.tpot_ms = bench::Summarize(std::move(tpot_ms));
  summary.latency_ms = bench::Summarize(std::move(latency_ms));
  summary.result = std::move(result);
  return summary;
}

ordered_json SummaryJson(const SystemSummary& summary) {
  const simulator::SimulationResult& result = summary.result;
  const simulator::Counters& counters = result.counters;
  ordered_json object;
  object["system"] = summary.system;
  object["num_requests"] = summary.num_requests;
  object["completed"] = summary.finished;
  object["ended_early"] = summary.ended_early;
  object["refused"] = summary.refused;
  object["duration"] = summary.duration_s;
  object["num_steps"] = result.num_steps;
  object["request_throughput"] = PerSecond(summary.finished, summary.duration_s);
  object["output_throughput"] = PerSecond(summary.output_tokens, summary.duration_s);
  object["mean_normalized_latency_ms"] = 1e3 * summary.mean_normalized_latency_s;
  AddMetric("ttft_ms", summary.ttft_ms, &object);
  AddMetric("queue_ms", summary.queue_ms, &object);
  AddMetric("tpot_ms", summary.tpot_ms, &object);
  AddMetric("e2el_ms", summary.latency_ms, &object);
  object["useful_share"] = result.useful_share;
  object["useful_share_inside_steps"] = result.useful_share_inside;
  object["useful_share_of_pool"] = result.pool_useful_share;
  object["saved_by_sharing"] = result.saved_by_sharing;
  object["mean_batched"] = result.mean_batched;
  object["peak_batched"] = result.peak_batched;
  object["preemptions"] = counters.preemptions;
  object["prefill_tokens"] = counters.prefill_tokens;
  object["decode_tokens"] = counters.decode_tokens;
  object["recomputed_tokens"] = counters.recomputed_tokens;
  object["recompute_tax"] = result.RecomputeTax();
  object["prefix_query_tokens"] = counters.prefix_query_tokens;
  object["prefix_hit_tokens"] = counters.prefix_hit_tokens;
  object["prefix_hit_rate"] = summary.hit_rate;
  object["hit_tokens_after_preemption"] = counters.hit_tokens_after_preemption;
  object["copies_on_write"] = counters.copies_on_write;
  return object;
}

void PrintSummaries(std::span<const SystemSummary> summaries, std::ostream& out) {
  std::vector<Column> columns = {{""}};
  for (const SystemSummary& summary : summaries) columns.push_back({summary.system, Align::kRight});
  Table table(std::move(columns));
  const auto add_row = [&](const std::string& name, const auto& cell) {
    std::vector<std::string> cells = {name};
    for (const SystemSummary& summary : summaries) cells.push_back(cell(summary));
    table.AddRow(std::move(cells));
  };
  // What describes finished requests says nothing without one.
  const auto add_finished_row = [&](const std::string& name, const auto& cell) {
    add_row(name, [&](const SystemSummary& s) { return s.finished == 0 ? "-" : cell(s); });
  };
  const auto add_metric = [&](const std::string& name, bench::Summary SystemSummary::*metric) {
    add_finished_row(name + ": mean / p99", [metric](const SystemSummary& s) {
      return fmt::format("{} / {}", DurationText(absl::Milliseconds((s.*metric).mean)),
                         DurationText(absl::Milliseconds((s.*metric).p99)));
    });
  };
  add_row("requests finished", [](const SystemSummary& s) {
    return fmt::format("{} of {}", FormatCount(s.finished), FormatCount(s.num_requests));
  });
  add_row("ended early", [](const SystemSummary& s) { return FormatCount(s.ended_early); });
  add_row("refused", [](const SystemSummary& s) { return FormatCount(s.refused); });
  add_row("duration", [](const SystemSummary& s) { return DurationText(s.result.duration); });
  add_row("steps", [](const SystemSummary& s) { return FormatCount(s.result.num_steps); });
  add_finished_row("output tokens/s", [](const SystemSummary& s) {
    return fmt::format("{:.1f}", PerSecond(s.output_tokens, s.duration_s));
  });
  add_metric("TTFT", &SystemSummary::ttft_ms);
  add_metric("queueing", &SystemSummary::queue_ms);
  add_metric("TPOT", &SystemSummary::tpot_ms);
  add_metric("latency", &SystemSummary::latency_ms);
  add_finished_row("latency per token", [](const SystemSummary& s) {
    return DurationText(absl::Seconds(s.mean_normalized_latency_s));
  });
  add_row("useful of reserved slots",
          [](const SystemSummary& s) { return Percent(s.result.useful_share); });
  add_row("useful of all slots",
          [](const SystemSummary& s) { return Percent(s.result.pool_useful_share); });
  add_row("saved by sharing",
          [](const SystemSummary& s) { return Percent(s.result.saved_by_sharing); });
  add_row("sequences a step",
          [](const SystemSummary& s) { return fmt::format("{:.1f}", s.result.mean_batched); });
  add_row("prefix hits", [](const SystemSummary& s) { return Percent(s.hit_rate); });
  add_row("preemptions",
          [](const SystemSummary& s) { return FormatCount(s.result.counters.preemptions); });
  add_row("recomputed tokens", [](const SystemSummary& s) {
    return fmt::format("{} ({})", FormatCount(s.result.counters.recomputed_tokens),
                       Percent(s.result.RecomputeTax()));
  });
  table.Print(out);
}

ordered_json PaperRowJson(const simulator::PaperRow& row) {
  return {{"row", row.row},     {"paper", row.paper}, {"ours", row.ours}, {"unit", row.unit},
          {"bound", row.bound}, {"pass", row.pass},   {"note", row.note}};
}

void PrintPaperRows(std::span<const simulator::PaperRow> rows, std::ostream& out) {
  Table table(
      {{"row"}, {"paper", Align::kRight}, {"ours", Align::kRight}, {""}, {"bound"}, {"pass"}});
  for (const simulator::PaperRow& row : rows) {
    table.AddRow({row.row, row.paper, fmt::format("{:.2f}", row.ours), row.unit, row.bound,
                  row.pass ? "yes" : "NO"});
  }
  table.Print(out);
}

}  // namespace quire::cli::simulate
