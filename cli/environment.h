// Everything that Quire reads from the environment, in one place. No other folder reads it.
#pragma once

#include <string>

namespace quire::cli {

struct Environment {
  std::string quire_home;  // $QUIRE_HOME: the cache folder.
  std::string home;        // $HOME
  std::string isa;         // $QUIRE_ISA: forces a level of the CPU kernels.
  std::string no_color;    // $NO_COLOR: not empty switches colours off (no-color.org).

  static Environment Read();

  // $QUIRE_HOME, else ~/.cache/quire; empty when neither is known.
  std::string cache_folder() const;
};

}  // namespace quire::cli
