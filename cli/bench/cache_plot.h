// The result of `quire bench cache` as a picture: an SVG of bars that any browser shows.
#pragma once

#include <string>

#include "cli/bench/cache_bench.h"

namespace quire::cli::bench {

std::string CachePlotSvg(const CacheBenchResult& result);

}  // namespace quire::cli::bench
