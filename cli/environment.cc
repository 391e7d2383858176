#include "cli/environment.h"

#include <cstdlib>

namespace quire::cli {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Environment Environment::Read() {
  return {.quire_home = Variable("QUIRE_HOME"),
          .home = Variable("HOME"),
          .isa = Variable("QUIRE_ISA"),
          .no_color = Variable("NO_COLOR")};
}

std::string Environment::cache_folder() const {
  if (!quire_home.empty()) return quire_home;
  return home.empty() ? "" : home + "/.cache/quire";
}

}  // namespace quire::cli
