#include "cli/help_formatter.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>
#include <vector>

#include "cli/table.h"

namespace quire::cli {
namespace {

// "--ignore-eos,--no-ignore-eos{false}" is shown as "--[no-]ignore-eos".
std::string FlagName(const CLI::Option& option, bool is_positional) {
  const std::string name = option.get_name(is_positional, !is_positional);
  const std::size_t negated = name.find(",--no-");
  return negated == std::string::npos ? name : "--[no-]" + name.substr(2, negated - 2);
}

std::vector<std::string> Wrap(const std::string& text, std::size_t width) {
  std::vector<std::string> lines = {""};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string& line = lines.back();
    if (!line.empty() && DisplayWidth(line) + 1 + DisplayWidth(word) > width) {
      lines.push_back(word);
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return lines;
}

}  // namespace

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string left = "  " + FlagName(*option, is_positional);
  if (option->get_type_size() != 0 && !option->get_type_name().empty() && !is_positional) {
    left += " " + option->get_type_name();
  }
  std::string right = option->get_description();
  if (option->get_required() && !is_positional) right += " (required)";
  if (!option->get_default_str().empty()) right += " [" + option->get_default_str() + "]";

  std::string text;
  for (const std::string& line : Wrap(right, kTotalColumns - kFlagColumns)) {
    if (DisplayWidth(left) + 1 > kFlagColumns) text += std::exchange(left, "") + "\n";
    text += left + std::string(kFlagColumns - DisplayWidth(left), ' ') + line + "\n";
    left.clear();
  }
  return text;
}

}  // namespace quire::cli
