// Typed flags over CLI11: every wrong value is refused while the command line is read, with the
// flag's name, what was given and what is allowed.
//
// The bound variables must outlive the parsing; those that live in a shared struct of the command
// do.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/units.h"

namespace quire::cli {

struct IntRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};

// `parse` turns the text into a value or says why not; its message follows the flag's name.
template <class T>
CLI::Option* AddParsed(CLI::App& app, const std::string& name,
                       std::function<absl::StatusOr<T>(const std::string&)> parse,
                       std::function<void(T)> set, const std::string& help,
                       const std::string& type) {
  return app
      .add_option_function<std::string>(
          name,
          [name, parse = std::move(parse), set = std::move(set)](const std::string& text) {
            auto value = parse(text);
            if (!value.ok()) {
              throw CLI::ValidationError(name, std::string(value.status().message()));
            }
            set(*std::move(value));
          },
          help)
      ->type_name(type);
}

// A whole number within `range`.
absl::StatusOr<std::int64_t> ParseIntIn(IntRange range, const std::string& text);
CLI::Option* AddInt(CLI::App& app, const std::string& name, std::int32_t* value, IntRange range,
                    const std::string& help);
CLI::Option* AddInt(CLI::App& app, const std::string& name, std::int64_t* value, IntRange range,
                    const std::string& help);
// The same without a default: unset stays unset.
CLI::Option* AddOptionalInt(CLI::App& app, const std::string& name,
                            std::optional<std::int64_t>* value, IntRange range,
                            const std::string& help);
// A number in [min, max].
CLI::Option* AddDouble(CLI::App& app, const std::string& name, double* value, double min,
                       double max, const std::string& help);
// --server HOST:PORT.
CLI::Option* AddServer(CLI::App& app, std::string* target, const std::string& help);
// A size in bytes with KiB, MiB, GiB or TiB, from `min_bytes` on.
CLI::Option* AddOptionalBytes(CLI::App& app, const std::string& name,
                              std::optional<std::int64_t>* bytes, std::int64_t min_bytes,
                              const std::string& help);
// A file that is written when the work is done. Refused at once when its folder does not allow it.
CLI::Option* AddOutputFile(CLI::App& app, const std::string& name, std::string* path,
                           const std::string& help);
// Seconds, fractions allowed, at least 0.
CLI::Option* AddSeconds(CLI::App& app, const std::string& name, absl::Duration* value,
                        const std::string& help, absl::Duration max = absl::InfiniteDuration());

// One of a few words.
template <class T>
CLI::Option* AddChoice(CLI::App& app, const std::string& name, T* value,
                       std::vector<std::pair<std::string, T>> choices, const std::string& help) {
  std::string words;
  std::string default_word;
  for (const auto& [word, choice] : choices) {
    words += (words.empty() ? "" : "|") + word;
    if (choice == *value && default_word.empty()) default_word = word;
  }
  auto* option = AddParsed<T>(
      app, name,
      [choices = std::move(choices), words](const std::string& text) -> absl::StatusOr<T> {
        for (const auto& [word, choice] : choices) {
          if (word == text) return choice;
        }
        return absl::InvalidArgumentError("must be one of " + words + ", got \"" + text + "\"");
      },
      [value](T choice) { *value = choice; }, help, words);
  return option->default_str(default_word);
}

// A switch: --name.
CLI::Option* AddSwitch(CLI::App& app, const std::string& name, bool* value,
                       const std::string& help);

}  // namespace quire::cli
