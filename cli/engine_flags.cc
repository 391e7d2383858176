#include "cli/engine_flags.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/status.h"
#include "cli/progress.h"
#include "kernels/cpu/cpu_features.h"
#include "server/status.h"

namespace quire::cli {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxTokens = 1 << 24;
constexpr const char* kGroup = "Model and engine";

void AddPoolFlags(CLI::App& app, EngineFlags* flags, CLI::Option* model) {
  AddInt(app, "--block-size", &flags->host.block_size, {1, 256},
         "token slots of a KV block, a power of two")
      ->needs(model);
  auto* num_blocks = AddOptionalInt(app, "--num-blocks", &flags->host.num_blocks, {1, kMaxInt32},
                                    "KV blocks of the pool")
                         ->needs(model);
  AddOptionalBytes(app, "--kv-cache-memory", &flags->host.kv_cache_bytes, 1,
                   "memory of the KV pool instead, such as 512MiB (default: the smaller of a "
                   "quarter of the available memory and max-num-seqs x max-model-len)")
      ->needs(model)
      ->excludes(num_blocks);
  AddChoice<EngineFlags::KvChoice>(app, "--kv-cache-dtype", &flags->kv_cache_dtype,
                                   {{"auto", EngineFlags::KvChoice::kAuto},
                                    {"f32", EngineFlags::KvChoice::kF32},
                                    {"f16", EngineFlags::KvChoice::kF16}},
                                   "auto: f16, or f32 with --weight-dtype f32")
      ->needs(model);
  AddSwitch(app, "--no-prefix-caching", &flags->no_prefix_caching,
            "compute every prompt from its first token")
      ->needs(model);
  AddDouble(app, "--session-cache-share", &flags->host.engine.session_cache_share, 0, 1,
            "share of the pool that sessions may keep between their turns; 0: no sessions")
      ->needs(model);
  AddSeconds(app, "--session-ttl", &flags->host.engine.session_ttl,
             "how long a session's blocks are kept for its next turn")
      ->default_str("600")
      ->needs(model);
}

void AddSchedulerFlags(CLI::App& app, EngineFlags* flags, CLI::Option* model) {
  auto* scheduler = &flags->host.engine.scheduler;
  AddInt(app, "--max-num-seqs", &scheduler->max_num_seqs, {1, 65'536}, "sequences that run at once")
      ->needs(model);
  AddInt(app, "--max-num-batched-tokens", &scheduler->max_num_batched_tokens, {1, kMaxTokens},
         "tokens of one step, at least max-num-seqs")
      ->needs(model);
  AddOptionalInt(app, "--max-prefill-tokens", &flags->max_prefill_tokens, {1, kMaxTokens},
                 fmt::format("prefill tokens of a step that also decodes (default: {}, or the "
                             "budget of the step if that is less)",
                             scheduler->max_prefill_tokens))
      ->needs(model);
  AddOptionalInt(app, "--max-model-len", &flags->max_model_len, {1, kMaxTokens},
                 "tokens of a sequence, prompt and answer (default: the model's own)")
      ->needs(model);
  AddChoice<scheduler::Policy>(
      app, "--scheduling-policy", &scheduler->policy,
      {{"fcfs", scheduler::Policy::kFcfs}, {"priority", scheduler::Policy::kPriority}},
      "which waiting request is next")
      ->needs(model);
  AddInt(app, "--client-quantum", &scheduler->client_quantum, {0, 1 << 20},
         "clients (client_id) take turns at starting requests, each with this many prompt tokens "
         "per round; 0: in order of arrival")
      ->needs(model);
  AddDouble(app, "--target-itl-ms", &flags->target_itl_ms, 0, 60'000,
            "prefill tokens beside decodes adapt so that the time between two tokens stays below "
            "this; 0: always --max-prefill-tokens")
      ->needs(model);
  AddInt(app, "--max-in-flight-steps", &scheduler->max_in_flight_steps, {0, 1 << 20},
         "how many steps a request waits for a prefix that another one is computing")
      ->needs(model);
}

std::string_view WeightDtypeName(engine::model::WeightDtype dtype) {
  switch (dtype) {
    case engine::model::WeightDtype::kAuto:
      return "auto";
    case engine::model::WeightDtype::kF32:
      return "f32";
    case engine::model::WeightDtype::kBf16:
      return "bf16";
  }
  return "unknown";
}

}  // namespace

CLI::Option* AddEngineFlags(CLI::App& app, EngineFlags* flags) {
  const std::size_t num_before = app.get_options().size();
  auto* model = AddModelFlags(app, &flags->model);
  AddInt(app, "--threads", &flags->host.threads, {0, 1024},
         "compute threads; 0: the CPUs that this process may use")
      ->needs(model);
  AddChoice<engine::model::WeightDtype>(app, "--weight-dtype", &flags->host.weight_dtype,
                                        {{"auto", engine::model::WeightDtype::kAuto},
                                         {"f32", engine::model::WeightDtype::kF32},
                                         {"bf16", engine::model::WeightDtype::kBf16}},
                                        "auto keeps what the file stores")
      ->needs(model);
  AddPoolFlags(app, flags, model);
  AddSchedulerFlags(app, flags, model);
  AddChoice<std::string>(app, "--backend", &flags->host.backend,
                         {{"cpu", "cpu"}, {"reference", "reference"}},
                         "reference is slow and simple")
      ->needs(model);
  AddOutputFile(
      app, "--step-log", &flags->host.step_log,
      "a line of JSON for each step: its work and its seconds (quire simulate --fit-steps)")
      ->needs(model);
  const auto options = app.get_options();
  for (std::size_t i = num_before; i < options.size(); ++i) options[i]->group(kGroup);
  return model;
}

void AddChatTemplateFlag(CLI::App& app, EngineFlags* flags) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const std::string& name : engine::text::BuiltinChatTemplateNames()) {
    names.emplace_back(name, name);
  }
  AddChoice<std::string>(app, "--chat-template", &flags->host.chat_template, std::move(names),
                         "a built-in chat format instead of the model's own")
      ->needs(app.get_option("--model"))
      ->group(kGroup);
}

void AddServerLimitFlags(CLI::App& app, EngineFlags* flags) {
  AddInt(app, "--max-queued-requests", &flags->host.engine.max_queued_requests, {1, 1 << 20},
         "further ones get RESOURCE_EXHAUSTED")
      ->group(kGroup);
  AddInt(app, "--max-logprobs", &flags->host.engine.max_logprobs, {-1, kMaxInt32},
         "alternatives that a request may ask for; -1: no limit")
      ->group(kGroup);
}

absl::StatusOr<engine::HostOptions> MakeHostOptions(const EngineFlags& flags,
                                                    const Environment& environment) {
  engine::HostOptions options = flags.host;
  options.model_path = flags.model.model;
  options.isa = environment.isa;
  options.max_model_len = static_cast<std::int32_t>(flags.max_model_len.value_or(0));
  options.engine.enable_prefix_caching = !flags.no_prefix_caching;
  auto& scheduler = options.engine.scheduler;
  scheduler.max_prefill_tokens = static_cast<std::int32_t>(flags.max_prefill_tokens.value_or(
      std::min(scheduler.max_prefill_tokens, scheduler.max_num_batched_tokens)));
  scheduler.target_itl = absl::Milliseconds(flags.target_itl_ms);
  switch (flags.kv_cache_dtype) {
    case EngineFlags::KvChoice::kAuto:
      break;
    case EngineFlags::KvChoice::kF32:
      options.kv_dtype = KvDtype::kF32;
      break;
    case EngineFlags::KvChoice::kF16:
      options.kv_dtype = KvDtype::kF16;
      break;
  }
  QUIRE_RETURN_IF_ERROR(options.Validate());
  if (options.backend == "cpu" && !options.isa.empty()) {
    const auto isa = kernels::cpu::SelectIsa(options.isa);
    if (!isa.ok()) return InvalidArgument("QUIRE_ISA: {}", AsStd(isa.status().message()));
  }
  return options;
}

absl::StatusOr<std::unique_ptr<engine::EngineHost>> StartHost(const EngineFlags& flags,
                                                              engine::HostOptions options,
                                                              engine::OutputSink* sink,
                                                              const CommandContext& context) {
  QUIRE_ASSIGN_OR_RETURN(options.model_path, ResolveModel(flags.model, context));
  Progress bar(context.console, FormatBytes);
  auto started = engine::StartEngine(
      options, sink, [&bar](const std::string& stage, std::int64_t done, std::int64_t total) {
        if (total > 1) bar.Update(stage, done, total);
      });
  if (!started.ok()) return WithFetchHint(started.status(), options.model_path, context);
  auto host = *std::move(started);
  for (const std::string& warning : host->report.warnings)
    spdlog::warn("{}", server::PrintableMessage(warning));
  return host;
}

std::map<std::string, std::string> EffectiveSettings(const engine::HostOptions& options,
                                                     const engine::HostReport& report) {
  const auto& scheduler = options.engine.scheduler;
  return {
      {"model", report.model_path},
      {"backend", report.backend},
      {"isa", report.isa},
      {"threads", std::to_string(report.threads)},
      {"block-size", std::to_string(report.block_size)},
      {"num-blocks", std::to_string(report.num_blocks)},
      {"kv-cache-memory", std::to_string(report.kv_bytes)},
      {"kv-cache-dtype", report.kv_dtype},
      {"weight-dtype", std::string(WeightDtypeName(options.weight_dtype))},
      {"max-model-len", std::to_string(report.max_model_len)},
      {"max-num-seqs", std::to_string(scheduler.max_num_seqs)},
      {"max-num-batched-tokens", std::to_string(scheduler.max_num_batched_tokens)},
      {"max-prefill-tokens", std::to_string(scheduler.max_prefill_tokens)},
      {"max-queued-requests", std::to_string(options.engine.max_queued_requests)},
      {"max-logprobs", std::to_string(options.engine.max_logprobs)},
      {"no-prefix-caching", options.engine.enable_prefix_caching ? "false" : "true"},
      {"scheduling-policy", scheduler.policy == scheduler::Policy::kFcfs ? "fcfs" : "priority"},
      {"session-cache-share", fmt::format("{}", options.engine.session_cache_share)},
      {"session-ttl", absl::FormatDuration(options.engine.session_ttl)},
      {"client-quantum", std::to_string(scheduler.client_quantum)},
      {"target-itl-ms", fmt::format("{}", absl::ToDoubleMilliseconds(scheduler.target_itl))},
      {"max-in-flight-steps", std::to_string(scheduler.max_in_flight_steps)},
      {"chat-template", report.chat_template},
  };
}

}  // namespace quire::cli
