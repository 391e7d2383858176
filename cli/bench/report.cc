#include "cli/bench/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "cli/table.h"
#include "cli/units.h"

namespace quire::cli::bench {
namespace {

using nlohmann::ordered_json;

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

struct Samples {
  std::vector<double> ttft, tpot, itl, e2el;
};

void Collect(const RequestRecord& record, Samples* samples) {
  const absl::Time first = record.arrivals.front().time;
  const absl::Time last = record.arrivals.back().time;
  samples->ttft.push_back(Milliseconds(first - record.due));
  samples->e2el.push_back(Milliseconds(record.done - record.due));
  if (record.completion_tokens > 1) {
    samples->tpot.push_back(Milliseconds(last - first) / (record.completion_tokens - 1));
  }
  for (std::size_t i = 1; i < record.arrivals.size(); ++i) {
    samples->itl.push_back(Milliseconds(record.arrivals[i].time - record.arrivals[i - 1].time));
  }
}

void AddFailure(const RequestRecord& record, BenchReport* report) {
  ++report->failed;
  const bool incomplete = record.status.ok();
  Failures& failures =
      report->errors[incomplete ? "INCOMPLETE" : absl::StatusCodeToString(record.status.code())];
  if (++failures.count > 1) return;
  failures.first_message =
      incomplete ? "the answer had no end or no tokens" : std::string(record.status.message());
}

std::int64_t PeakTokensPerSecond(const LoadResult& load) {
  std::map<std::int64_t, std::int64_t> tokens_of_second;
  for (const RequestRecord& record : load.records) {
    for (const TokenArrival& arrival : record.arrivals) {
      tokens_of_second[absl::ToInt64Seconds(arrival.time - load.start)] += arrival.num_tokens;
    }
  }
  std::int64_t peak = 0;
  for (const auto& [second, tokens] : tokens_of_second) peak = std::max(peak, tokens);
  return peak;
}

// How evenly and how fast the tool itself sent.
void DescribeSending(const LoadResult& load, BenchReport* report) {
  absl::Time last_sent = load.start;
  for (const RequestRecord& record : load.records) {
    last_sent = std::max(last_sent, record.sent);
    report->max_send_delay_ms =
        std::max(report->max_send_delay_ms, Milliseconds(record.sent - record.due));
  }
  const double seconds = absl::ToDoubleSeconds(last_sent - load.start);
  if (seconds > 0)
    report->achieved_request_rate = static_cast<double>(load.records.size()) / seconds;
}

double PerSecond(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

void AddMetric(const std::string& name, const Summary& summary, ordered_json* object) {
  (*object)["mean_" + name] = summary.mean;
  (*object)["median_" + name] = summary.p50;
  (*object)["std_" + name] = summary.std;
  (*object)["p50_" + name] = summary.p50;
  (*object)["p90_" + name] = summary.p90;
  (*object)["p95_" + name] = summary.p95;
  (*object)["p99_" + name] = summary.p99;
  (*object)["max_" + name] = summary.max;
  (*object)["num_samples_" + name] = summary.count;
}

void AddMetricRow(const std::string& name, const Summary& summary, Table* table) {
  const auto cell = [&summary](double ms) {
    return summary.count > 0 ? fmt::format("{:.2f}", ms) : "-";
  };
  table->AddRow({name, FormatCount(summary.count), cell(summary.mean), cell(summary.p50),
                 cell(summary.p90), cell(summary.p95), cell(summary.p99), cell(summary.max)});
}

}  // namespace

BenchReport MakeReport(const BenchSettings& settings, const LoadResult& load,
                       const ServerSide& server) {
  BenchReport report{.settings = settings, .server = server};
  report.duration_s = absl::ToDoubleSeconds(load.end - load.start);
  report.max_concurrent_requests = load.max_concurrent_requests;
  report.max_output_tokens_per_s = PeakTokensPerSecond(load);
  DescribeSending(load, &report);
  Samples samples;
  for (const RequestRecord& record : load.records) {
    if (!record.succeeded()) {
      AddFailure(record, &report);
      continue;
    }
    ++report.completed;
    report.total_input_tokens += record.prompt_tokens;
    report.total_cached_tokens += record.cached_tokens;
    report.total_output_tokens += record.completion_tokens;
    Collect(record, &samples);
  }
  report.ttft_ms = Summarize(std::move(samples.ttft));
  report.tpot_ms = Summarize(std::move(samples.tpot));
  report.itl_ms = Summarize(std::move(samples.itl));
  report.e2el_ms = Summarize(std::move(samples.e2el));
  return report;
}

void AddErrors(const BenchReport& report, ordered_json* object) {
  ordered_json& counts = (*object)["errors"] = ordered_json::object();
  for (const auto& [code, failures] : report.errors) counts[code] = failures.count;
  ordered_json& messages = (*object)["error_messages"] = ordered_json::object();
  for (const auto& [code, failures] : report.errors) messages[code] = failures.first_message;
}

void AddErrors(const BenchReport& report, Table* table) {
  for (const auto& [code, failures] : report.errors) {
    table->AddRow({"  " + code, fmt::format("{}, first: {}", FormatCount(failures.count),
                                            failures.first_message)});
  }
}

ordered_json ReportJson(const BenchReport& report) {
  const BenchSettings& settings = report.settings;
  ordered_json object;
  object["date"] = settings.date;
  object["endpoint_type"] = "quire.v1";
  object["backend"] = "quire";
  object["label"] = settings.workload;
  object["model_id"] = settings.model_id;
  object["tokenizer_id"] = settings.model_id;
  object["num_prompts"] = settings.num_prompts;
  object["request_rate"] =
      settings.request_rate > 0 ? ordered_json(settings.request_rate) : ordered_json("inf");
  object["burstiness"] = 1.0;
  object["max_concurrency"] =
      settings.max_concurrency > 0 ? ordered_json(settings.max_concurrency) : ordered_json();
  object["seed"] = settings.seed;
  object["duration"] = report.duration_s;
  object["completed"] = report.completed;
  object["failed"] = report.failed;
  object["total_input_tokens"] = report.total_input_tokens;
  object["total_cached_tokens"] = report.total_cached_tokens;
  object["total_output_tokens"] = report.total_output_tokens;
  object["request_throughput"] = PerSecond(report.completed, report.duration_s);
  object["request_goodput"] = nullptr;
  object["output_throughput"] = PerSecond(report.total_output_tokens, report.duration_s);
  object["total_token_throughput"] =
      PerSecond(report.total_input_tokens + report.total_output_tokens, report.duration_s);
  object["max_output_tokens_per_s"] = report.max_output_tokens_per_s;
  object["max_concurrent_requests"] = report.max_concurrent_requests;
  object["achieved_request_rate"] = report.achieved_request_rate;
  object["max_send_delay_ms"] = report.max_send_delay_ms;
  AddMetric("ttft_ms", report.ttft_ms, &object);
  AddMetric("tpot_ms", report.tpot_ms, &object);
  AddMetric("itl_ms", report.itl_ms, &object);
  AddMetric("e2el_ms", report.e2el_ms, &object);
  AddErrors(report, &object);
  object["peak_kv_blocks"] = report.server.peak_kv_blocks;
  object["kv_blocks_capacity"] = report.server.kv_blocks_capacity;
  object["preemptions"] = report.server.preemptions;
  object["peak_server_requests"] = report.server.peak_requests;
  object["num_stats_samples"] = report.server.num_samples;
  return object;
}

void PrintReport(const BenchReport& report, std::ostream& out) {
  const BenchSettings& settings = report.settings;
  const std::string loop = settings.request_rate > 0
                               ? fmt::format("open loop, {} requests/s asked, {:.2f} sent",
                                             settings.request_rate, report.achieved_request_rate)
                               : fmt::format("closed loop, {} in flight", settings.max_concurrency);
  Table facts({{""}, {""}});
  facts.AddRow({"load", fmt::format("{}, {}, seed {}", settings.workload, loop, settings.seed)});
  facts.AddRow({"requests", fmt::format("{} completed, {} failed", FormatCount(report.completed),
                                        FormatCount(report.failed))});
  AddErrors(report, &facts);
  facts.AddRow({"duration", fmt::format("{:.2f} s", report.duration_s)});
  facts.AddRow(
      {"tokens", fmt::format("{} in ({} cached), {} out", FormatCount(report.total_input_tokens),
                             FormatCount(report.total_cached_tokens),
                             FormatCount(report.total_output_tokens))});
  facts.AddRow(
      {"throughput", fmt::format("{:.2f} requests/s, {:.1f} output tokens/s (peak second {})",
                                 PerSecond(report.completed, report.duration_s),
                                 PerSecond(report.total_output_tokens, report.duration_s),
                                 FormatCount(report.max_output_tokens_per_s))});
  facts.AddRow(
      {"in flight", fmt::format("{} at most here, {} on the server", report.max_concurrent_requests,
                                report.server.peak_requests)});
  facts.AddRow({"sent late by", fmt::format("{:.2f} ms at most", report.max_send_delay_ms)});
  facts.AddRow({"KV blocks", fmt::format("{} of {} active at most, {}",
                                         FormatCount(report.server.peak_kv_blocks),
                                         FormatCount(report.server.kv_blocks_capacity),
                                         Counted(report.server.preemptions, "preemption"))});
  facts.Print(out);
  out << '\n';
  Table metrics({{"milliseconds"},
                 {"samples", Align::kRight},
                 {"mean", Align::kRight},
                 {"p50", Align::kRight},
                 {"p90", Align::kRight},
                 {"p95", Align::kRight},
                 {"p99", Align::kRight},
                 {"max", Align::kRight}});
  AddMetricRow("time to first token", report.ttft_ms, &metrics);
  AddMetricRow("time per output token", report.tpot_ms, &metrics);
  AddMetricRow("between messages", report.itl_ms, &metrics);
  AddMetricRow("end to end", report.e2el_ms, &metrics);
  metrics.Print(out);
}

}  // namespace quire::cli::bench
