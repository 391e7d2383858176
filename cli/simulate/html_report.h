// One self-contained HTML page with plots of a simulation, drawn by matplotlib: Python is needed
// for this alone.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "cli/simulate/summary.h"

namespace quire::cli::simulate {

// FAILED_PRECONDITION saying what to install, unless `python` runs and finds matplotlib.
absl::Status CheckPlotTool(const std::string& python);

// What the page shows.
nlohmann::ordered_json ReportData(const std::string& title,
                                  std::span<const SystemSummary> summaries,
                                  std::span<const simulator::PaperRow> rows);

absl::Status WriteHtmlReport(const std::string& python, const nlohmann::ordered_json& data,
                             const std::string& path);

}  // namespace quire::cli::simulate
