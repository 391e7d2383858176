#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::cli {
namespace {

constexpr int kBarWidth = 30;

}  // namespace

Progress::Progress(const Console& console, Format format, Clock& clock)
    : console_(console),
      format_(format ? std::move(format) : [](std::int64_t n) { return std::to_string(n); }),
      clock_(clock),
      next_draw_(console.err_is_terminal ? clock.Now() : clock.Now() + kLineEvery) {}

Progress::~Progress() { Clear(); }

void Progress::Update(const std::string& stage, std::int64_t done, std::int64_t total) {
  const bool is_new = stage != stage_;
  stage_ = stage;
  const absl::Time now = clock_.Now();
  if (console_.err_is_terminal) {
    if (now < next_draw_ && !is_new) return;
    next_draw_ = now + kRedrawEvery;
    console_.err << '\r' << stage << "  " << Render(done, total) << "\x1b[K" << std::flush;
    drawn_ = true;
  } else {
    if (now < next_draw_) return;
    next_draw_ = now + kLineEvery;
    console_.err << stage << ": " << Render(done, total) << std::endl;
  }
}

void Progress::Clear() {
  if (!drawn_) return;
  console_.err << "\r\x1b[K" << std::flush;
  drawn_ = false;
  next_draw_ = clock_.Now();
}

std::string Progress::Render(std::int64_t done, std::int64_t total) const {
  if (total <= 0) return done > 0 ? format_(done) : "…";
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const std::string counts =
      fmt::format("{:3.0f} %  {} of {}", share * 100, format_(done), format_(total));
  if (!console_.err_is_terminal) return counts.substr(counts.find_first_not_of(' '));
  const int filled = static_cast<int>(share * kBarWidth);
  return fmt::format("[{}{}] {}", std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(kBarWidth - filled), '.'), counts);
}

}  // namespace quire::cli
