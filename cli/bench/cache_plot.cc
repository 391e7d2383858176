#include "cli/bench/cache_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "cli/units.h"

namespace quire::cli::bench {
namespace {

// Pixels.
constexpr int kMargin = 24;
constexpr int kNameWidth = 110;
constexpr int kPanelWidth = 300;
constexpr int kBarWidth = 180;  // Of the longest bar; its value stands right of it.
constexpr int kBarHeight = 16;
constexpr int kBarStep = 24;
constexpr int kTitleHeight = 46;
constexpr int kHeading = 64;
constexpr int kPanelHeight = kTitleHeight + kBarStep * static_cast<int>(kCacheModes.size()) + 24;

struct Bar {
  double value = 0;
  double inner = 0;  // A part of it, drawn darker.
  std::string text = {};
};

struct Panel {
  std::string title;
  std::vector<Bar> bars = {};  // One per mode.
};

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

void AddText(int x, int y, const char* style, const std::string& text, std::string* svg) {
  fmt::format_to(std::back_inserter(*svg), "<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>\n", x, y,
                 style, Escaped(text));
}

void AddBar(int x, int y, double width, const char* style, std::string* svg) {
  fmt::format_to(std::back_inserter(*svg),
                 "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" class=\"{}\"/>\n", x, y,
                 width, kBarHeight, style);
}

void AddPanel(int x, int y, const Panel& panel, std::string* svg) {
  AddText(x, y + kTitleHeight - 14, "title", panel.title, svg);
  double longest = 0;
  for (const Bar& bar : panel.bars) longest = std::max(longest, bar.value);
  const double scale = longest > 0 ? kBarWidth / longest : 0;
  for (std::size_t i = 0; i < panel.bars.size(); ++i) {
    const Bar& bar = panel.bars[i];
    const int top = y + kTitleHeight + kBarStep * static_cast<int>(i);
    AddBar(x, top, bar.value * scale, "bar", svg);
    if (bar.inner > 0) AddBar(x, top, bar.inner * scale, "inner", svg);
    AddText(x + static_cast<int>(std::ceil(bar.value * scale)) + 6, top + 13, "value", bar.text,
            svg);
  }
}

std::vector<Panel> PanelsOf(const CacheBenchResult& result, CacheRun CacheModeResult::*member) {
  Panel rate{.title = "output tokens/s (more is better)"};
  Panel ttft{.title = "mean time to first token, ms"};
  Panel bytes{.title = "KV bytes reserved, dark: useful"};
  for (const CacheModeResult& mode : result.modes) {
    const CacheRun& run = mode.*member;
    const double tokens_per_second = run.output_tokens_per_second();
    rate.bars.push_back(
        {.value = tokens_per_second, .text = fmt::format("{:.1f}", tokens_per_second)});
    ttft.bars.push_back(
        {.value = run.mean_ttft_ms, .text = fmt::format("{:.1f}", run.mean_ttft_ms)});
    const double reserved = run.usage.mean_reserved_bytes();
    bytes.bars.push_back({.value = reserved,
                          .inner = run.usage.mean_useful_bytes(),
                          .text = FormatBytes(std::llround(reserved))});
  }
  return {rate, ttft, bytes};
}

void AddWorkload(int y, const std::string& name, const CacheBenchResult& result,
                 CacheRun CacheModeResult::*member, std::string* svg) {
  AddText(kMargin, y + 14, "workload", name, svg);
  for (std::size_t i = 0; i < result.modes.size(); ++i) {
    AddText(kMargin, y + kTitleHeight + kBarStep * static_cast<int>(i) + 13, "value",
            std::string(CacheModeName(result.modes[i].mode)), svg);
  }
  int x = kMargin + kNameWidth;
  for (const Panel& panel : PanelsOf(result, member)) {
    AddPanel(x, y, panel, svg);
    x += kPanelWidth;
  }
}

}  // namespace

std::string CachePlotSvg(const CacheBenchResult& result) {
  const CacheBenchOptions& options = result.options;
  const int width = 2 * kMargin + kNameWidth + 3 * kPanelWidth;
  const int height = kHeading + 2 * kPanelHeight + kMargin;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\">\n"
      "<style>text{{font-family:sans-serif;fill:#222}}.heading{{font-size:18px}}"
      ".workload{{font-size:15px;font-weight:bold}}.title{{font-size:12px;fill:#555}}"
      ".value{{font-size:12px}}.bar{{fill:#9db8d9}}.inner{{fill:#2f5d9b}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height);
  AddText(kMargin, 32, "heading",
          fmt::format("{}: what the KV cache is worth, the same tokens in every mode",
                      result.model_id()),
          &svg);
  AddWorkload(kHeading,
              fmt::format("One conversation of {} turns, {} new tokens and {} answered in each",
                          options.num_turns, options.input_len, options.max_tokens),
              result, &CacheModeResult::conversation, &svg);
  AddWorkload(
      kHeading + kPanelHeight,
      fmt::format("{} requests at once, {} common tokens, {} own and {} answered in each",
                  options.num_requests, options.prefix_len, options.input_len, options.max_tokens),
      result, &CacheModeResult::shared_prefix, &svg);
  return svg + "</svg>\n";
}

}  // namespace quire::cli::bench
