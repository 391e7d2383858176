// The rows of "Efficient Memory Management for Large Language Model Serving with PagedAttention"
// (Kwon et al., SOSP 2023) that a simulation can reproduce: OPT-13B on one A100 with 40 GB.
//
// Numbers come from the simulations alone; a bound that is missed is reported as missed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace quire::simulator {

struct PaperRow {
  std::string row;    // "useful-share/sharegpt/quire"
  std::string unit;   // "%", "x"
  std::string paper;  // What the paper (or the vLLM thread named in the note) says; "-": nothing.
  double ours = 0;
  std::string bound = {};  // ">= 97.5"; "as measured" always passes.
  bool pass = true;
  std::string note = {};  // What was run, and why the two numbers differ.
};

struct PaperOptions {
  std::uint64_t seed = 0;
  // Requests of the traces, as a share of the full preset's; the rows' bounds are meant for 1.
  double scale = 1;
};

// Calls `on_row` for each row as soon as it is known.
void RunPaperPreset(const PaperOptions& options,
                    const std::function<void(const PaperRow&)>& on_row);

}  // namespace quire::simulator
