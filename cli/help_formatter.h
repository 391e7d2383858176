// How --help looks: one column of flags, one of wrapped explanations with the default in brackets.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace quire::cli {

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kFlagColumns); }
  std::string make_option(const CLI::Option* option, bool is_positional) const override;

 private:
  static constexpr std::size_t kFlagColumns = 34;
  static constexpr std::size_t kTotalColumns = 100;
};

}  // namespace quire::cli
