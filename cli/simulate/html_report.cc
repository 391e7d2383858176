#include "cli/simulate/html_report.h"

#include <algorithm>
#include <cstdio>

#include "base/status.h"
#include "cli/atomic_file.h"
#include "cli/simulate/plot_script.h"
#include "cli/subprocess.h"

namespace quire::cli::simulate {
namespace {

using nlohmann::ordered_json;

// Points of a cumulative curve: enough for a smooth one.
constexpr std::size_t kMaxCurvePoints = 400;

ordered_json Quantiles(std::span<const double> sorted) {
  ordered_json points = ordered_json::array();
  const std::size_t count = std::min(sorted.size(), kMaxCurvePoints);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t rank = (i + 1) * sorted.size() / count;
    points.push_back(
        {sorted[rank - 1], static_cast<double>(rank) / static_cast<double>(sorted.size())});
  }
  return points;
}

ordered_json Timeline(const simulator::SimulationResult& result) {
  ordered_json points = ordered_json::array();
  for (const simulator::TimelinePoint& point : result.timeline) {
    points.push_back({point.seconds, point.num_sequences, point.num_waiting, point.memory.useful,
                      point.memory.reserved, point.memory.capacity});
  }
  return points;
}

absl::Status Run(const std::vector<std::string>& argv) {
  const auto ran = RunProcess(argv, {});
  if (!ran.ok()) {
    return FailedPrecondition("--report needs Python 3, but {} cannot be started: {}", argv[0],
                              AsStd(ran.status().message()));
  }
  if (ran->exit_status == 0) return absl::OkStatus();
  return FailedPrecondition("{} ended with {}: {}", argv[0], ran->exit_status, ran->output);
}

}  // namespace

absl::Status CheckPlotTool(const std::string& python) {
  if (Run({python, "-c", "import matplotlib"}).ok()) return absl::OkStatus();
  return FailedPrecondition(
      "--report draws with matplotlib, which \"{}\" does not have: install python3-matplotlib "
      "(Debian) or matplotlib (pip), or name another interpreter with --python",
      python);
}

ordered_json ReportData(const std::string& title, std::span<const SystemSummary> summaries,
                        std::span<const simulator::PaperRow> rows) {
  ordered_json data = {
      {"title", title}, {"systems", ordered_json::array()}, {"rows", ordered_json::array()}};
  for (const SystemSummary& summary : summaries) {
    ordered_json system = SummaryJson(summary);
    system["timeline"] = Timeline(summary.result);
    system["ttft_s"] = Quantiles(summary.ttft_s);
    system["latency_s"] = Quantiles(summary.latency_s);
    data["systems"].push_back(std::move(system));
  }
  for (const simulator::PaperRow& row : rows) data["rows"].push_back(PaperRowJson(row));
  return data;
}

absl::Status WriteHtmlReport(const std::string& python, const ordered_json& data,
                             const std::string& path) {
  const std::string data_path = path + ".data";
  QUIRE_RETURN_IF_ERROR(WriteFileAtomically(data_path, data.dump()));
  const absl::Status drawn = Run({python, "-c", kPlotScript, data_path, path});
  std::remove(data_path.c_str());
  return drawn;
}

}  // namespace quire::cli::simulate
