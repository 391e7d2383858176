// Progress of long work on stderr: a bar that redraws itself when a person looks at a terminal, a
// plain line now and then otherwise.
//
// Thread: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "cli/console.h"

namespace quire::cli {

class Progress {
 public:
  static constexpr absl::Duration kRedrawEvery = absl::Milliseconds(100);
  static constexpr absl::Duration kLineEvery = absl::Seconds(5);

  // How `done` and `total` are shown; the default is the plain number.
  using Format = std::function<std::string(std::int64_t)>;
  explicit Progress(const Console& console, Format format = {}, Clock& clock = Clock::Real());
  // Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows `stage` at done of total; `total` 0 when unknown, both 0 when there is nothing to count.
  // Cheap when called often: draws at most every kRedrawEvery (terminal) or kLineEvery (otherwise),
  // and at once when the stage changes (terminal only: a stage shorter than kLineEvery leaves no
  // line in a log).
  void Update(const std::string& stage, std::int64_t done, std::int64_t total);
  // Removes the bar, so that other text can be written; the next Update draws it again.
  void Clear();

 private:
  std::string Render(std::int64_t done, std::int64_t total) const;

  const Console console_;
  const Format format_;
  Clock& clock_;
  std::string stage_;
  absl::Time next_draw_;
  bool drawn_ = false;  // A bar is on the terminal's current line.
};

}  // namespace quire::cli
