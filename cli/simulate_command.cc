// quire simulate
#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/atomic_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/simulate/html_report.h"
#include "cli/simulate/summary.h"
#include "simulator/paper.h"
#include "simulator/simulation.h"
#include "simulator/system_factory.h"
#include "simulator/trace.h"
#include "simulator/workload.h"

namespace quire::cli {
namespace {

using simulator::SystemKind;

constexpr SystemKind kAllSystems[] = {SystemKind::kQuire,      SystemKind::kVllm,
                                      SystemKind::kOrcaOracle, SystemKind::kOrcaPow2,
                                      SystemKind::kOrcaMax,    SystemKind::kStatic};

constexpr std::int64_t kMaxSlots = std::numeric_limits<std::int32_t>::max();

enum class Preset { kNone, kPaper };
enum class Shape { kShareGpt, kAlpaca, kFixed, kLognormal, kSharedPrefix, kMultiTurn, kTrace };

struct SimulateFlags {
  Preset preset = Preset::kNone;
  Shape shape = Shape::kShareGpt;
  std::string trace;
  std::int32_t num_prompts = 1000;
  double request_rate = 0;
  std::optional<std::int64_t> input_len, output_len;
  std::optional<double> input_sigma, output_sigma;
  std::int32_t prefix_len = 256, num_prefixes = 4;
  std::int32_t num_turns = 4;
  absl::Duration think_time = absl::Seconds(5);
  std::int32_t n = 1;
  std::uint64_t seed = 0;

  std::vector<SystemKind> systems = {SystemKind::kQuire};
  simulator::SystemOptions system;
  std::optional<std::int64_t> num_blocks;
  bool no_prefix_caching = false;

  std::optional<double> step_fixed_ms, step_prefill_token_us, step_decode_sequence_us,
      step_context_token_us;
  std::string fit_steps;

  simulator::SimulationOptions simulation;
  std::string report;
  std::string python = "python3";
  bool json = false;
};

absl::StatusOr<std::vector<SystemKind>> ParseSystems(const std::string& text) {
  if (text == "all") return std::vector<SystemKind>(std::begin(kAllSystems), std::end(kAllSystems));
  std::vector<SystemKind> systems;
  std::string names;
  for (const SystemKind kind : kAllSystems) {
    names += std::string(simulator::SystemName(kind)) + ", ";
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const auto found = std::ranges::find(kAllSystems, name, &simulator::SystemName);
    if (found == std::end(kAllSystems)) {
      return InvalidArgument("must be all or some of {}got \"{}\"", names, name);
    }
    systems.push_back(*found);
    begin = end + 1;
  }
  return systems;
}

const char* ShapeName(Shape shape) {
  switch (shape) {
    case Shape::kShareGpt:
      return "sharegpt";
    case Shape::kAlpaca:
      return "alpaca";
    case Shape::kFixed:
      return "fixed";
    case Shape::kLognormal:
      return "lognormal";
    case Shape::kSharedPrefix:
      return "shared-prefix";
    case Shape::kMultiTurn:
      return "multi-turn";
    case Shape::kTrace:
      return "trace";
  }
  return "";
}

simulator::WorkloadOptions WorkloadOf(const SimulateFlags& flags) {
  simulator::WorkloadOptions workload;
  if (flags.shape == Shape::kShareGpt) workload = simulator::ShareGptShape();
  if (flags.shape == Shape::kAlpaca) workload = simulator::AlpacaShape();
  if (flags.shape == Shape::kLognormal) {
    workload.input.sigma = 1.0;
    workload.output.sigma = 0.8;
  }
  if (flags.input_len) workload.input.mean = static_cast<double>(*flags.input_len);
  if (flags.output_len) workload.output.mean = static_cast<double>(*flags.output_len);
  if (flags.input_sigma) workload.input.sigma = *flags.input_sigma;
  if (flags.output_sigma) workload.output.sigma = *flags.output_sigma;
  workload.max_total_len = flags.system.scheduler.max_model_len;
  workload.num_requests = flags.num_prompts;
  workload.request_rate = flags.request_rate;
  workload.num_branches = flags.n;
  workload.seed = flags.seed;
  if (flags.shape == Shape::kSharedPrefix) {
    workload.num_prefixes = flags.num_prefixes;
    workload.prefix_len = flags.prefix_len;
  }
  if (flags.shape == Shape::kMultiTurn) {
    workload.num_turns = flags.num_turns;
    workload.mean_think_time = flags.think_time;
  }
  return workload;
}

// A flag that would change nothing is a mistake.
absl::Status CheckWorkloadFlags(const CLI::App& command, Shape shape) {
  constexpr std::pair<const char*, Shape> kOfOneShape[] = {{"--prefix-len", Shape::kSharedPrefix},
                                                           {"--num-prefixes", Shape::kSharedPrefix},
                                                           {"--turns", Shape::kMultiTurn},
                                                           {"--think-time", Shape::kMultiTurn},
                                                           {"--trace", Shape::kTrace}};
  for (const auto& [flag, needed] : kOfOneShape) {
    if (shape != needed && command.count(flag) > 0) {
      return InvalidArgument("{} needs --workload {}", flag, ShapeName(needed));
    }
  }
  constexpr const char* kNotOfTraces[] = {
      "--num-prompts", "--request-rate", "--input-len", "--output-len",
      "--input-sigma", "--output-sigma", "--n"};
  for (const char* flag : kNotOfTraces) {
    if (shape == Shape::kTrace && command.count(flag) > 0) {
      return InvalidArgument("{} cannot be used with --workload trace", flag);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<simulator::Request>> RequestsOf(const SimulateFlags& flags) {
  if (flags.shape != Shape::kTrace) {
    const simulator::WorkloadOptions workload = WorkloadOf(flags);
    QUIRE_RETURN_IF_ERROR(workload.Validate());
    return simulator::MakeWorkload(workload);
  }
  if (flags.trace.empty()) return InvalidArgument("--workload trace needs --trace");
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.trace));
  const auto format = flags.trace.ends_with(".csv") ? simulator::TraceFormat::kCsv
                                                    : simulator::TraceFormat::kJsonLines;
  auto requests = simulator::ParseTrace(text, format, flags.seed);
  if (!requests.ok()) {
    return InvalidArgument("{}: {}", flags.trace, AsStd(requests.status().message()));
  }
  return requests;
}

absl::StatusOr<simulator::StepTimeModel> StepTimeOf(const SimulateFlags& flags) {
  simulator::StepTimeModel model = simulator::StepTimeModel::Opt13bOnA100();
  if (!flags.fit_steps.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.fit_steps));
    const auto steps = simulator::ParseMeasuredSteps(text);
    if (!steps.ok()) {
      return InvalidArgument("{}: {}", flags.fit_steps, AsStd(steps.status().message()));
    }
    const auto fit = simulator::StepTimeModel::Fit(*steps);
    if (!fit.ok()) {
      return InvalidArgument("--fit-steps {}: {}", flags.fit_steps, AsStd(fit.status().message()));
    }
    model = *fit;
  }
  if (flags.step_fixed_ms) model.fixed_s = *flags.step_fixed_ms * 1e-3;
  if (flags.step_prefill_token_us) model.per_prefill_token_s = *flags.step_prefill_token_us * 1e-6;
  if (flags.step_decode_sequence_us) {
    model.per_decode_sequence_s = *flags.step_decode_sequence_us * 1e-6;
  }
  if (flags.step_context_token_us) model.per_context_token_s = *flags.step_context_token_us * 1e-6;
  QUIRE_RETURN_IF_ERROR(model.Validate());
  return model;
}

// Writes the page if one is wanted.
absl::Status Report(const SimulateFlags& flags, const std::string& title,
                    std::span<const simulate::SystemSummary> summaries,
                    std::span<const simulator::PaperRow> rows) {
  if (flags.report.empty()) return absl::OkStatus();
  return simulate::WriteHtmlReport(flags.python, simulate::ReportData(title, summaries, rows),
                                   flags.report);
}

ExitCode RunPaper(const SimulateFlags& flags, const CommandContext& context) {
  std::vector<simulator::PaperRow> rows;
  std::int64_t missed = 0;
  simulator::RunPaperPreset({.seed = flags.seed}, [&](const simulator::PaperRow& row) {
    if (flags.json) context.console.out << simulate::PaperRowJson(row).dump() << std::endl;
    if (!row.pass) ++missed;
    rows.push_back(row);
  });
  if (!flags.json) simulate::PrintPaperRows(rows, context.console.out);
  const absl::Status reported = Report(flags, "quire simulate --preset paper", {}, rows);
  if (!reported.ok()) return context.console.Fail(reported);
  if (missed == 0) return ExitCode::kOk;
  return context.console.Fail(Aborted("{} of {} rows miss their bound", missed, rows.size()));
}

// Memory of the simulation itself: about 80 bytes a block.
absl::Status CheckPool(const SimulateFlags& flags) {
  constexpr std::int64_t kMaxBlocksInAll = std::int64_t{1} << 26;
  const std::int64_t block_size = flags.system.block_size, num_slots = flags.system.num_slots;
  const std::int64_t min_slots = std::max<std::int64_t>(block_size, 2);
  if (!flags.num_blocks && num_slots < min_slots) {
    return InvalidArgument("--kv-slots must be in [{}, {}] with --block-size {}, got {}", min_slots,
                           kMaxSlots, block_size, num_slots);
  }
  const std::int64_t num_blocks = num_slots / block_size;
  const std::int32_t num_replicas = flags.simulation.num_replicas;
  if (num_blocks * num_replicas > kMaxBlocksInAll) {
    return InvalidArgument(
        "{} x --replicas: {} x {} blocks do not fit into a simulation, which holds at most {}",
        flags.num_blocks ? "--num-blocks" : "--kv-slots / --block-size", num_blocks, num_replicas,
        kMaxBlocksInAll);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<simulate::SystemSummary>> RunSystems(
    SimulateFlags flags, const std::vector<simulator::Request>& requests,
    const CommandContext& context) {
  flags.system.enable_prefix_caching = !flags.no_prefix_caching;
  if (flags.num_blocks) flags.system.num_slots = *flags.num_blocks * flags.system.block_size;
  QUIRE_RETURN_IF_ERROR(CheckPool(flags));
  QUIRE_RETURN_IF_ERROR(flags.system.Validate());
  QUIRE_ASSIGN_OR_RETURN(flags.simulation.step_time, StepTimeOf(flags));
  std::vector<simulate::SystemSummary> summaries;
  for (const SystemKind kind : flags.systems) {
    flags.system.kind = kind;
    auto result = simulator::Simulate(flags.simulation, requests,
                                      [&] { return simulator::MakeSystem(flags.system); });
    if (!result.first_refusal.empty()) {
      context.console.err << simulator::SystemName(kind)
                          << " refused requests: " << result.first_refusal << std::endl;
    }
    summaries.push_back(
        simulate::Summarize(std::string(simulator::SystemName(kind)), requests, std::move(result)));
  }
  return summaries;
}

ExitCode Simulate(const SimulateFlags& flags, const CLI::App& command,
                  const CommandContext& context) {
  if (!flags.report.empty()) {
    const absl::Status tool = simulate::CheckPlotTool(flags.python);
    if (!tool.ok()) return context.console.Fail(tool, ExitCode::kUsage);
  }
  if (flags.preset == Preset::kPaper) return RunPaper(flags, context);
  const absl::Status valid = CheckWorkloadFlags(command, flags.shape);
  if (!valid.ok()) return context.console.Fail(valid, ExitCode::kUsage);
  const auto requests = RequestsOf(flags);
  if (!requests.ok()) return context.console.Fail(requests.status(), ExitCode::kUsage);
  const auto summaries = RunSystems(flags, *requests, context);
  if (!summaries.ok()) return context.console.Fail(summaries.status(), ExitCode::kUsage);
  if (flags.json) {
    for (const simulate::SystemSummary& summary : *summaries) {
      nlohmann::ordered_json line = simulate::SummaryJson(summary);
      line["workload"] = ShapeName(flags.shape);
      line["seed"] = flags.seed;
      line["num_replicas"] = flags.simulation.num_replicas;
      context.console.out << line.dump() << std::endl;
    }
  } else {
    simulate::PrintSummaries(*summaries, context.console.out);
  }
  const absl::Status reported = Report(
      flags, std::string("quire simulate --workload ") + ShapeName(flags.shape), *summaries, {});
  if (!reported.ok()) return context.console.Fail(reported);
  return ExitCode::kOk;
}

CLI::Option* AddOptionalDouble(CLI::App& app, const std::string& name, std::optional<double>* value,
                               double min, double max, const std::string& help) {
  return AddParsed<double>(
      app, name,
      [min, max](const std::string& text) -> absl::StatusOr<double> {
        const auto parsed = ParseDouble(text);
        if (parsed.ok() && *parsed >= min && *parsed <= max) return *parsed;
        return InvalidArgument("must be a number in [{}, {}], got \"{}\"", min, max, text);
      },
      [value](double parsed) { *value = parsed; }, help, fmt::format("{}..{}", min, max));
}

void AddRequestRate(CLI::App& app, double* rate) {
  static constexpr double kMin = simulator::WorkloadOptions::kMinRequestRate;
  static constexpr double kMax = simulator::WorkloadOptions::kMaxRequestRate;
  AddParsed<double>(
      app, "--request-rate",
      [](const std::string& text) -> absl::StatusOr<double> {
        const auto parsed = ParseDouble(text);
        if (parsed.ok() && (*parsed == 0 || (*parsed >= kMin && *parsed <= kMax))) return *parsed;
        return InvalidArgument("must be 0 or a number in [{}, {}], got \"{}\"", kMin, kMax, text);
      },
      [rate](double parsed) { *rate = parsed; }, "Poisson arrivals a second; 0: all at the start",
      "RATE")
      ->default_str("0");
}

void AddWorkloadFlags(CLI::App& app, SimulateFlags* flags) {
  AddChoice<Shape>(app, "--workload", &flags->shape,
                   {{"sharegpt", Shape::kShareGpt},
                    {"alpaca", Shape::kAlpaca},
                    {"fixed", Shape::kFixed},
                    {"lognormal", Shape::kLognormal},
                    {"shared-prefix", Shape::kSharedPrefix},
                    {"multi-turn", Shape::kMultiTurn},
                    {"trace", Shape::kTrace}},
                   "what the requests look like");
  app.add_option("--trace", flags->trace, "requests from a JSON-lines or .csv file")
      ->type_name("FILE");
  AddInt(app, "--num-prompts", &flags->num_prompts, {1, 10'000'000},
         "requests; for multi-turn conversations");
  AddRequestRate(app, &flags->request_rate);
  AddOptionalInt(app, "--input-len", &flags->input_len, {1, 1 << 20}, "mean tokens of a prompt");
  AddOptionalInt(app, "--output-len", &flags->output_len, {1, 1 << 20}, "mean tokens of an answer");
  AddOptionalDouble(app, "--input-sigma", &flags->input_sigma, 0, 4,
                    "sigma of the prompt length's logarithm; 0: fixed");
  AddOptionalDouble(app, "--output-sigma", &flags->output_sigma, 0, 4, "the same of the answer's");
  AddInt(app, "--prefix-len", &flags->prefix_len, {1, 1 << 20},
         "shared-prefix: tokens before those of --input-len");
  AddInt(app, "--num-prefixes", &flags->num_prefixes, {1, 1 << 20},
         "shared-prefix: different prefixes");
  AddInt(app, "--turns", &flags->num_turns, {1, 10'000}, "multi-turn: requests of a conversation");
  AddSeconds(app, "--think-time", &flags->think_time, "multi-turn: mean time between turns",
             simulator::WorkloadOptions::kMaxThinkTime)
      ->default_str("5");
  AddInt(app, "--n", &flags->n, {1, 1 << 10}, "branches of each request");
  AddParsed<std::uint64_t>(
      app, "--seed", [](const std::string& text) { return ParseUint(text); },
      [flags](std::uint64_t seed) { flags->seed = seed; }, "of lengths, contents and arrivals", "N")
      ->default_str("0");
}

void AddSystemFlags(CLI::App& app, SimulateFlags* flags) {
  AddParsed<std::vector<SystemKind>>(
      app, "--system", ParseSystems,
      [flags](std::vector<SystemKind> systems) { flags->systems = std::move(systems); },
      "all, or some of quire,vllm,orca-oracle,orca-pow2,orca-max,static", "NAMES")
      ->default_str("quire");
  scheduler::SchedulerOptions& scheduler = flags->system.scheduler;
  AddInt(app, "--kv-slots", &flags->system.num_slots, {2, kMaxSlots},
         "token slots of the KV memory");
  AddOptionalInt(app, "--num-blocks", &flags->num_blocks, {1, std::int64_t{1} << 30},
                 "instead of --kv-slots");
  AddInt(app, "--block-size", &flags->system.block_size, {1, 256},
         "slots of a block, a power of two");
  AddInt(app, "--max-num-seqs", &scheduler.max_num_seqs, {1, 1 << 16}, "running sequences");
  AddInt(app, "--max-num-batched-tokens", &scheduler.max_num_batched_tokens, {1, 1 << 24},
         "token budget of a step");
  AddInt(app, "--max-prefill-tokens", &scheduler.max_prefill_tokens, {1, 1 << 24},
         "quire: prefill tokens in a step that also decodes");
  AddInt(app, "--max-model-len", &scheduler.max_model_len, {2, 1 << 24},
         "tokens of a sequence; what orca-max and static reserve");
  AddDouble(app, "--watermark", &scheduler.watermark, 0, 0.99,
            "quire: share of the blocks kept free at admission");
  AddSwitch(app, "--no-prefix-caching", &flags->no_prefix_caching, "share no cached prefixes");
  AddInt(app, "--replicas", &flags->simulation.num_replicas, {1, 1000}, "machines, all alike");
  AddChoice<simulator::Routing>(app, "--routing", &flags->simulation.routing,
                                {{"round_robin", simulator::Routing::kRoundRobin},
                                 {"least_load", simulator::Routing::kLeastLoad},
                                 {"cache_aware", simulator::Routing::kCacheAware}},
                                "which replica gets a request");
}

void AddStepTimeFlags(CLI::App& app, SimulateFlags* flags) {
  AddOptionalDouble(app, "--step-fixed-ms", &flags->step_fixed_ms, 0, 1e6, "time of any step");
  AddOptionalDouble(app, "--step-prefill-token-us", &flags->step_prefill_token_us, 0, 1e9,
                    "more for each prefill token");
  AddOptionalDouble(app, "--step-decode-sequence-us", &flags->step_decode_sequence_us, 0, 1e9,
                    "more for each sequence that decodes");
  AddOptionalDouble(app, "--step-context-token-us", &flags->step_context_token_us, 0, 1e9,
                    "more for each token of context");
  app.add_option("--fit-steps", flags->fit_steps,
                 "fit the step times to measured steps (JSON lines) instead")
      ->type_name("FILE");
}

}  // namespace

void AddSimulateCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<SimulateFlags>();
  auto* simulate = app.add_subcommand(
      "simulate", "What paging buys: the scheduler under a step-time model, beside older policies");
  AddChoice<Preset>(*simulate, "--preset", &flags->preset,
                    {{"none", Preset::kNone}, {"paper", Preset::kPaper}},
                    "paper: the rows of the PagedAttention paper, each with its bound; of the "
                    "other flags only --seed counts");
  AddWorkloadFlags(*simulate, flags.get());
  AddSystemFlags(*simulate, flags.get());
  AddStepTimeFlags(*simulate, flags.get());
  AddOutputFile(*simulate, "--report", &flags->report, "also write an HTML page with plots");
  simulate->add_option("--python", flags->python, "the interpreter that has matplotlib")
      ->type_name("PROGRAM")
      ->capture_default_str();
  AddSwitch(*simulate, "--json", &flags->json, "print a JSON object a line");
  simulate->footer(
      "No model and no clock: the same command prints the same numbers. Step times are those of\n"
      "OPT-13B on one A100 with 40 GB unless given or fitted.\n\n"
      "Examples:\n"
      "  quire simulate --preset paper --json\n"
      "  quire simulate --workload sharegpt --request-rate 3 --system all --report paging.html\n"
      "  quire simulate --workload shared-prefix --replicas 100 --routing cache_aware "
      "--request-rate 300\n"
      "  quire simulate --workload trace --trace requests.jsonl --fit-steps steps.jsonl");
  simulate->callback([=] { *action = [=] { return Simulate(*flags, *simulate, context); }; });
}

}  // namespace quire::cli
