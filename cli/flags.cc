#include "cli/flags.h"

#include <limits>

#include "base/status.h"
#include "cli/atomic_file.h"

namespace quire::cli {
namespace {

std::string RangeType(IntRange range) {
  if (range.max == std::numeric_limits<std::int64_t>::max()) return fmt::format(">={}", range.min);
  return fmt::format("{}..{}", range.min, range.max);
}

template <class Int>
CLI::Option* AddIntOf(CLI::App& app, const std::string& name, Int* value, IntRange range,
                      const std::string& help) {
  return AddParsed<std::int64_t>(
             app, name, [range](const std::string& text) { return ParseIntIn(range, text); },
             [value](std::int64_t parsed) { *value = static_cast<Int>(parsed); }, help,
             RangeType(range))
      ->default_str(std::to_string(*value));
}

}  // namespace

absl::StatusOr<std::int64_t> ParseIntIn(IntRange range, const std::string& text) {
  const auto value = ParseInt(text);
  if (value.ok() && *value >= range.min && *value <= range.max) return *value;
  return InvalidArgument("must be a whole number in [{}, {}], got \"{}\"", range.min, range.max,
                         text);
}

CLI::Option* AddInt(CLI::App& app, const std::string& name, std::int32_t* value, IntRange range,
                    const std::string& help) {
  return AddIntOf(app, name, value, range, help);
}

CLI::Option* AddInt(CLI::App& app, const std::string& name, std::int64_t* value, IntRange range,
                    const std::string& help) {
  return AddIntOf(app, name, value, range, help);
}

CLI::Option* AddOptionalInt(CLI::App& app, const std::string& name,
                            std::optional<std::int64_t>* value, IntRange range,
                            const std::string& help) {
  return AddParsed<std::int64_t>(
      app, name, [range](const std::string& text) { return ParseIntIn(range, text); },
      [value](std::int64_t parsed) { *value = parsed; }, help, RangeType(range));
}

CLI::Option* AddDouble(CLI::App& app, const std::string& name, double* value, double min,
                       double max, const std::string& help) {
  return AddParsed<double>(
             app, name,
             [min, max](const std::string& text) -> absl::StatusOr<double> {
               const auto parsed = ParseDouble(text);
               if (parsed.ok() && *parsed >= min && *parsed <= max) return *parsed;
               return InvalidArgument("must be a number in [{}, {}], got \"{}\"", min, max, text);
             },
             [value](double parsed) { *value = parsed; }, help, fmt::format("{}..{}", min, max))
      ->default_str(fmt::format("{}", *value));
}

CLI::Option* AddOptionalBytes(CLI::App& app, const std::string& name,
                              std::optional<std::int64_t>* bytes, std::int64_t min_bytes,
                              const std::string& help) {
  return AddParsed<std::int64_t>(
      app, name,
      [min_bytes](const std::string& text) -> absl::StatusOr<std::int64_t> {
        QUIRE_ASSIGN_OR_RETURN(const std::int64_t parsed, ParseBytes(text));
        if (parsed >= min_bytes) return parsed;
        return InvalidArgument("must be at least {} bytes, got \"{}\"", min_bytes, text);
      },
      [bytes](std::int64_t parsed) { *bytes = parsed; }, help, "SIZE");
}

CLI::Option* AddOutputFile(CLI::App& app, const std::string& name, std::string* path,
                           const std::string& help) {
  return AddParsed<std::string>(
      app, name,
      [](const std::string& text) -> absl::StatusOr<std::string> {
        QUIRE_RETURN_IF_ERROR(CheckWritable(text));
        return text;
      },
      [path](std::string text) { *path = std::move(text); }, help, "FILE");
}

CLI::Option* AddSeconds(CLI::App& app, const std::string& name, absl::Duration* value,
                        const std::string& help, absl::Duration max) {
  return AddParsed<double>(
      app, name,
      [max](const std::string& text) -> absl::StatusOr<double> {
        const auto seconds = ParseDouble(text);
        if (seconds.ok() && *seconds >= 0 && absl::Seconds(*seconds) <= max) return *seconds;
        const std::string range = max == absl::InfiniteDuration()
                                      ? ", 0 or more"
                                      : fmt::format(" in [0, {}]", absl::ToDoubleSeconds(max));
        return InvalidArgument("must be a number of seconds{}, got \"{}\"", range, text);
      },
      [value](double seconds) { *value = absl::Seconds(seconds); }, help, "SECONDS");
}

CLI::Option* AddServer(CLI::App& app, std::string* target, const std::string& help) {
  return AddParsed<std::string>(
      app, "--server",
      [](const std::string& text) -> absl::StatusOr<std::string> {
        const std::size_t colon = text.rfind(':');
        if (colon == std::string::npos || colon == 0 ||
            !ParseIntIn({1, 65'535}, text.substr(colon + 1)).ok()) {
          return InvalidArgument("must be HOST:PORT, got \"{}\"", text);
        }
        return text;
      },
      [target](std::string text) { *target = std::move(text); }, help, "HOST:PORT");
}

CLI::Option* AddSwitch(CLI::App& app, const std::string& name, bool* value,
                       const std::string& help) {
  return app.add_flag_callback(
      name, [value] { *value = true; }, help);
}

}  // namespace quire::cli
