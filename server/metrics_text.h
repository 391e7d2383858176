// One scrape of /metrics: a snapshot of the engine as Prometheus text (format 0.0.4), under our own
// names (quire_*) and, where a metric of the same meaning exists, under vLLM's (vllm:*), which
// dashboards, autoscalers and gateways read. Names are API.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "engine/stats.h"

namespace quire::server {

// What does not change while a server runs.
struct MetricsInfo {
  std::string model_name;
  std::string version;
  std::string cache_dtype;
  bool prefix_caching = true;
};

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Everything comes from the one snapshot `stats`, so active + cached + free == capacity in it.
std::string MetricsText(const engine::EngineStats& stats, absl::Duration uptime, bool serving,
                        const MetricsInfo& info);

}  // namespace quire::server
