// --model and --offline: which model a command works on, and whether it may be fetched.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/model_store.h"

namespace quire::cli {

struct ModelFlags {
  std::string model;
  bool offline = false;
};

// Returns the option --model, so that the caller can require or exclude it.
CLI::Option* AddModelFlags(CLI::App& app, ModelFlags* flags);

// The path that `flags.model` means; a known model that is not in the cache is fetched, with
// progress on stderr.
absl::StatusOr<std::string> ResolveModel(const ModelFlags& flags, const CommandContext& context);

// `status` of opening or loading `path`. A known model's own file from the cache that is not as it
// should be: how to mend it.
absl::Status WithFetchHint(const absl::Status& status, const std::string& path,
                           const CommandContext& context);

// Fetches one known model (quire model fetch).
absl::StatusOr<std::string> FetchModel(const KnownModel& model, const CommandContext& context);

}  // namespace quire::cli
