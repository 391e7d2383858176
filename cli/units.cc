#include "cli/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "base/status.h"

namespace quire::cli {
namespace {

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

template <class Number>
absl::StatusOr<Number> ParseWhole(std::string_view text, std::string_view kind) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    return InvalidArgument("\"{}\" is too large", text);
  }
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return InvalidArgument("\"{}\" is not {}", text, kind);
  }
  return value;
}

struct Unit {
  std::string_view name;
  int shift;
};
constexpr std::array<Unit, 4> kUnits = {{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};

}  // namespace

absl::StatusOr<std::int64_t> ParseInt(std::string_view text) {
  return ParseWhole<std::int64_t>(text, "a whole number");
}

absl::StatusOr<std::uint64_t> ParseUint(std::string_view text) {
  return ParseWhole<std::uint64_t>(text, "a whole number, 0 or larger");
}

absl::StatusOr<double> ParseDouble(std::string_view text) {
  auto value = ParseWhole<double>(text, "a number");
  if (value.ok() && !std::isfinite(*value)) {
    return InvalidArgument("\"{}\" is not a finite number", text);
  }
  return value;
}

absl::StatusOr<std::int64_t> ParseBytes(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  for (const Unit& unit : kUnits) {
    if (!trimmed.ends_with(unit.name)) continue;
    const auto number = ParseDouble(Trim(trimmed.substr(0, trimmed.size() - unit.name.size())));
    if (!number.ok() || *number < 0) break;
    const double bytes = std::ldexp(*number, unit.shift);
    if (bytes >= std::ldexp(1.0, 63)) return InvalidArgument("\"{}\" is too large", text);
    return static_cast<std::int64_t>(bytes);
  }
  const auto bytes = ParseInt(trimmed);
  if (bytes.ok() && *bytes >= 0) return *bytes;
  return InvalidArgument("\"{}\" is not a size: write bytes, or KiB, MiB, GiB or TiB (\"512MiB\")",
                         text);
}

absl::StatusOr<std::vector<TokenId>> ParseTokenIds(std::string_view text) {
  std::vector<TokenId> ids;
  if (Trim(text).empty()) return ids;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = Trim(text.substr(begin, end - begin));
    QUIRE_ASSIGN_OR_RETURN(const std::int64_t id, ParseInt(item));
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) {
      return InvalidArgument("\"{}\" is not a token id", item);
    }
    ids.push_back(static_cast<TokenId>(id));
    begin = end + 1;
  }
  return ids;
}

std::string FormatBytes(std::int64_t bytes) {
  for (auto unit = kUnits.rbegin(); unit != kUnits.rend(); ++unit) {
    if (bytes < std::int64_t{1} << unit->shift) continue;
    return fmt::format("{:.1f} {}", std::ldexp(static_cast<double>(bytes), -unit->shift),
                       unit->name);
  }
  return fmt::format("{} B", bytes);
}

std::string FormatCount(std::int64_t count) {
  const std::string digits = std::to_string(count);
  std::string grouped;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = i > 0 && digits[i - 1] != '-';
    if (after_digit && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string Counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", FormatCount(count), noun, count == 1 ? "" : "s");
}

std::string DurationText(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  return fmt::format("{} min {:02d} s", whole / 60, whole % 60);
}

}  // namespace quire::cli
