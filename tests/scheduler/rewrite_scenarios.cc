// usage: rewrite_scenarios FILE...
// Replaces the expectations of scenario files by what really happens; read the difference before
// committing it.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/status.h"
#include "tests/scheduler/scenario.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ostringstream text;
    text << std::ifstream(argv[i]).rdbuf();
    const absl::StatusOr<std::string> rewritten = quire::scheduler::RewriteScenario(text.str());
    if (!rewritten.ok()) {
      const std::string message(quire::AsStd(rewritten.status().message()));
      std::fprintf(stderr, "%s: %s\n", argv[i], message.c_str());
      return 1;
    }
    std::ofstream(argv[i]) << *rewritten;
  }
  return 0;
}
