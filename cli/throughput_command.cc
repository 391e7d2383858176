// quire bench throughput
#include <memory>
#include <string>

#include "base/status.h"
#include "cli/atomic_file.h"
#include "cli/bench/local_load.h"
#include "cli/bench/throughput_report.h"
#include "cli/bench/workload_flags.h"
#include "cli/commands.h"
#include "cli/progress.h"

namespace quire::cli {
namespace {

struct ThroughputFlags {
  EngineFlags engine;
  bench::LocalLoadOptions load;
  bool ignore_eos = true;
  std::string output;
  bool json = false;
};

struct Outcome {
  bench::BenchReport report;
  bench::BlockUsage usage;
};

absl::StatusOr<Outcome> Measure(const ThroughputFlags& flags, const CommandContext& context) {
  QUIRE_ASSIGN_OR_RETURN(const auto target, OpenLocalTarget(flags.engine, context));
  const bench::WorkloadOptions& workload = flags.load.workload;
  const bench::BenchSettings settings{
      .date = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()),
      .model_id = target->host().report.model_name,
      .workload = bench::WorkloadName(workload.kind),
      .max_concurrency = flags.load.max_concurrency,
      .num_prompts = workload.num_prompts,
      .seed = workload.seed};
  QUIRE_RETURN_IF_ERROR(bench::WarmUp(*target, workload.seed));
  Progress bar(context.console);
  QUIRE_ASSIGN_OR_RETURN(
      const bench::LocalLoad run,
      bench::RunLocalLoad(*target, flags.load, [&](std::int32_t done, std::int32_t total) {
        bar.Update("requests", done, total);
      }));
  return Outcome{.report = bench::MakeReport(settings, run.load, {}), .usage = run.usage};
}

ExitCode Throughput(ThroughputFlags flags, const CommandContext& context) {
  const auto options = MakeHostOptions(flags.engine, context.environment);
  if (!options.ok()) return context.console.Fail(options.status(), ExitCode::kUsage);
  using AtEos = bench::RequestTargetOptions::AtEos;
  flags.load.requests.at_eos = flags.ignore_eos ? AtEos::kGoOn : AtEos::kStop;
  const auto outcome = Measure(flags, context);
  if (!outcome.ok()) return context.console.Fail(outcome.status());
  const std::string json = bench::ThroughputJson(outcome->report, outcome->usage).dump();
  bench::PrintThroughput(outcome->report, outcome->usage,
                         flags.json ? context.console.err : context.console.out);
  if (flags.json) context.console.out << json << std::endl;
  if (!flags.output.empty()) {
    const absl::Status written = WriteFileAtomically(flags.output, json + "\n");
    if (!written.ok()) return context.console.Fail(written);
  }
  if (outcome->report.failed == 0) return ExitCode::kOk;
  return context.console.Fail(Aborted("{} failed", Counted(outcome->report.failed, "request")));
}

}  // namespace

void AddBenchThroughputCommand(CLI::App& bench_app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<ThroughputFlags>();
  auto* throughput =
      bench_app.add_subcommand("throughput", "How much a model gets done in this process");
  AddEngineFlags(*throughput, &flags->engine)->required();
  bench::WorkloadOptions* workload = &flags->load.workload;
  bench::AddWorkloadFlags(*throughput, bench::WorkloadNames(), workload);
  AddInt(*throughput, "--turns", &workload->num_turns, {1, 10'000},
         "multi-turn: requests of each of the --num-prompts conversations");
  AddInt(*throughput, "--concurrency", &flags->load.max_concurrency, {0, 1 << 20},
         "requests in flight; 0: all at once");
  throughput->add_flag("--ignore-eos,!--no-ignore-eos", flags->ignore_eos,
                       "answers have exactly the asked length (default)");
  AddOutputFile(*throughput, "--output", &flags->output, "also write the JSON there");
  AddSwitch(*throughput, "--json", &flags->json, "JSON on stdout, the table on stderr");
  throughput->footer(
      "random, fixed, shared-prefix: --input-len and --output-len tokens. lognormal: so many on\n"
      "average, with sigma 1.0 and 0.8, clipped to 4..2048. sharegpt and alpaca: lognormal with\n"
      "161 and 338, 19 and 58 on average. multi-turn: every turn sends --input-len new tokens\n"
      "after all that was said. Lengths are cut to the model's context. JSON keys are those of\n"
      "vllm bench throughput, and what the KV blocks did.\n\n"
      "Examples:\n"
      "  quire bench throughput --model smollm2-135m --workload alpaca --num-prompts 50\n"
      "  quire bench throughput --model smollm2-135m --workload sharegpt --num-prompts 20 --json");
  throughput->callback([=] { *action = [=] { return Throughput(*flags, context); }; });
}

}  // namespace quire::cli
