// quire plan
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/plan.h"
#include "cli/table.h"
#include "engine/model/model.h"

namespace quire::cli {
namespace {

struct PlanFlags {
  ModelFlags model;
  std::string arch;
  std::optional<std::int64_t> layers, kv_heads, head_dim, hidden_size;
  KvDtype dtype = KvDtype::kF16;
  std::int32_t block_size = 16;
  std::int64_t tokens = 4096;
  std::int64_t batch = 1;
  std::optional<std::int64_t> memory_bytes;
  bool json = false;
};

struct Subject {
  std::string name;
  KvGeometry geometry;
  double num_parameters = 0;  // 0: unknown.
};

std::string ArchitectureNames() {
  std::string names;
  for (const Architecture& known : Architectures()) {
    names += (names.empty() ? "" : ", ") + known.name;
  }
  return names;
}

void SetDimensions(std::int64_t layers, std::int64_t kv_heads, std::int64_t head_dim,
                   KvGeometry* geometry) {
  geometry->num_layers = static_cast<int>(layers);
  geometry->num_kv_heads = static_cast<int>(kv_heads);
  geometry->k_dim = geometry->v_dim = static_cast<int>(head_dim);
}

absl::StatusOr<Subject> FromModel(const PlanFlags& flags, const CommandContext& context,
                                  Subject subject) {
  QUIRE_ASSIGN_OR_RETURN(const std::string path, ResolveModel(flags.model, context));
  const auto files = engine::model::OpenModel(path);
  if (!files.ok()) return WithFetchHint(files.status(), path, context);
  const auto& config = (*files)->config();
  subject.name = (*files)->name();
  subject.num_parameters = static_cast<double>(config.num_parameters);
  SetDimensions(config.num_layers, config.num_kv_heads, config.head_dim, &subject.geometry);
  return subject;
}

absl::StatusOr<Subject> FromArchitecture(const PlanFlags& flags, Subject subject) {
  for (const Architecture& known : Architectures()) {
    if (known.name != flags.arch) continue;
    subject.name = known.name;
    subject.num_parameters = known.num_parameters;
    SetDimensions(known.num_layers, known.num_kv_heads, known.head_dim, &subject.geometry);
    return subject;
  }
  return InvalidArgument("--arch: must be one of {}, got \"{}\"", ArchitectureNames(), flags.arch);
}

absl::StatusOr<Subject> FromDimensions(const PlanFlags& flags, Subject subject) {
  subject.name = "given dimensions";
  if (flags.layers && flags.hidden_size) {
    // Multi-head attention: heads times head width is the hidden size.
    SetDimensions(*flags.layers, 1, *flags.hidden_size, &subject.geometry);
    return subject;
  }
  if (!flags.layers || !flags.kv_heads || !flags.head_dim) {
    return InvalidArgument(
        "needs --model, --arch, --layers with --kv-heads and --head-dim, or --layers with "
        "--hidden-size");
  }
  SetDimensions(*flags.layers, *flags.kv_heads, *flags.head_dim, &subject.geometry);
  return subject;
}

absl::StatusOr<Subject> SubjectOf(const PlanFlags& flags, const CommandContext& context) {
  Subject subject;
  subject.geometry.block_size = flags.block_size;
  subject.geometry.k_dtype = subject.geometry.v_dtype = flags.dtype;
  if (!flags.model.model.empty()) return FromModel(flags, context, std::move(subject));
  if (!flags.arch.empty()) return FromArchitecture(flags, std::move(subject));
  return FromDimensions(flags, std::move(subject));
}

void PrintJson(const PlanFlags& flags, const Subject& subject, const KvPlan& plan,
               std::ostream& out) {
  nlohmann::ordered_json object = {{"name", subject.name},
                                   {"num_layers", subject.geometry.num_layers},
                                   {"num_kv_heads", subject.geometry.num_kv_heads},
                                   {"head_dim", subject.geometry.k_dim},
                                   {"dtype", KvDtypeName(flags.dtype)},
                                   {"block_size", flags.block_size},
                                   {"tokens", flags.tokens},
                                   {"batch", flags.batch},
                                   {"bytes_per_token", plan.bytes_per_token},
                                   {"bytes_per_block", plan.bytes_per_block},
                                   {"total_bytes", plan.total_bytes},
                                   {"num_blocks", plan.num_blocks},
                                   {"pool_bytes", plan.pool_bytes}};
  if (flags.memory_bytes) {
    const std::int64_t blocks = *flags.memory_bytes / plan.bytes_per_block;
    object["memory_bytes"] = *flags.memory_bytes;
    object["blocks_in_memory"] = blocks;
    object["tokens_in_memory"] = blocks * flags.block_size;
    object["sequences_in_memory"] = blocks / plan.blocks_per_sequence;
  }
  out << object.dump(2) << std::endl;
}

std::string BytesText(std::int64_t bytes) {
  return fmt::format("{} bytes ({})", FormatCount(bytes), FormatBytes(bytes));
}

void PrintTable(const PlanFlags& flags, const Subject& subject, const KvPlan& plan,
                std::ostream& out) {
  const KvGeometry& geometry = subject.geometry;
  const std::string heads =
      flags.hidden_size ? fmt::format("hidden size {}", geometry.k_dim)
                        : fmt::format("{} KV heads x {}", geometry.num_kv_heads, geometry.k_dim);
  Table table({{""}, {""}});
  table.AddRow({"model", fmt::format("{}: {} layers, {}, {}", subject.name, geometry.num_layers,
                                     heads, KvDtypeName(flags.dtype))});
  table.AddRow({"per token", BytesText(plan.bytes_per_token)});
  table.AddRow({fmt::format("per block of {}", flags.block_size), BytesText(plan.bytes_per_block)});
  table.AddRow({fmt::format("{} tokens x {}", FormatCount(flags.tokens), FormatCount(flags.batch)),
                BytesText(plan.total_bytes)});
  table.AddRow({"in blocks", fmt::format("{}, {}", Counted(plan.num_blocks, "block"),
                                         BytesText(plan.pool_bytes))});
  if (subject.num_parameters > 0) {
    const double weight_bytes = 2 * subject.num_parameters;
    table.AddRow({"beside 16-bit weights",
                  fmt::format("{}; these KV bytes are {:.2g} times that",
                              FormatBytes(static_cast<std::int64_t>(weight_bytes)),
                              static_cast<double>(plan.total_bytes) / weight_bytes)});
  }
  if (flags.memory_bytes) {
    const std::int64_t blocks = *flags.memory_bytes / plan.bytes_per_block;
    table.AddRow({fmt::format("in {}", FormatBytes(*flags.memory_bytes)),
                  fmt::format("{}, {}, {}", Counted(blocks, "block"),
                              Counted(blocks * flags.block_size, "token"),
                              Counted(blocks / plan.blocks_per_sequence, "such sequence"))});
  }
  table.Print(out);
}

ExitCode Plan(const PlanFlags& flags, const CommandContext& context) {
  const auto subject = SubjectOf(flags, context);
  if (!subject.ok()) {
    return context.console.Fail(subject.status(),
                                flags.model.model.empty() ? ExitCode::kUsage : ExitCode::kFailed);
  }
  const auto plan = PlanKv(subject->geometry, flags.tokens, flags.batch);
  if (!plan.ok()) return context.console.Fail(plan.status(), ExitCode::kUsage);
  if (flags.json) {
    PrintJson(flags, *subject, *plan, context.console.out);
  } else {
    PrintTable(flags, *subject, *plan, context.console.out);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddPlanCommand(CLI::App& app, const CommandContext& context, Action* action) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  auto flags = std::make_shared<PlanFlags>();
  auto* plan = app.add_subcommand("plan", "KV-cache bytes of a model or of given dimensions");
  auto* model = AddModelFlags(*plan, &flags->model);
  auto* arch =
      plan->add_option("--arch", flags->arch, "published dimensions: " + ArchitectureNames())
          ->type_name("NAME")
          ->excludes(model);
  auto* layers = AddOptionalInt(*plan, "--layers", &flags->layers, {1, 10'000}, "decoder layers")
                     ->excludes(model)
                     ->excludes(arch);
  auto* kv_heads = AddOptionalInt(*plan, "--kv-heads", &flags->kv_heads, {1, 100'000},
                                  "key/value heads: heads / group size")
                       ->needs(layers);
  auto* head_dim =
      AddOptionalInt(*plan, "--head-dim", &flags->head_dim, {1, 65'536}, "width of a head")
          ->needs(layers);
  AddOptionalInt(*plan, "--hidden-size", &flags->hidden_size, {1, 65'536},
                 "instead of heads, for multi-head attention")
      ->needs(layers)
      ->excludes(kv_heads)
      ->excludes(head_dim);
  AddChoice<KvDtype>(*plan, "--dtype", &flags->dtype,
                     {{"f16", KvDtype::kF16},
                      {"bf16", KvDtype::kBf16},
                      {"f32", KvDtype::kF32},
                      {"fp16", KvDtype::kF16},
                      {"fp32", KvDtype::kF32}},
                     "of keys and values");
  AddInt(*plan, "--block-size", &flags->block_size, {1, 256}, "slots of a block, a power of two");
  AddInt(*plan, "--tokens", &flags->tokens, {1, kMost}, "length of a sequence");
  AddInt(*plan, "--batch", &flags->batch, {1, kMost}, "sequences");
  AddOptionalBytes(*plan, "--memory", &flags->memory_bytes, 1,
                   "also show what fits into this much");
  AddSwitch(*plan, "--json", &flags->json, "print a JSON object");
  plan->footer(
      "Examples:\n"
      "  quire plan --model smollm2-135m --tokens 2048 --batch 16\n"
      "  quire plan --arch llama-3-8b --tokens 32768\n"
      "  quire plan --layers 32 --kv-heads 8 --head-dim 128 --dtype f16 --memory 8GiB");
  plan->callback([=] { *action = [=] { return Plan(*flags, context); }; });
}

}  // namespace quire::cli
