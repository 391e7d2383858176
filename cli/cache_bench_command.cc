// quire bench cache
#include <limits>
#include <memory>
#include <string>

#include "base/status.h"
#include "cli/atomic_file.h"
#include "cli/bench/cache_bench.h"
#include "cli/bench/cache_plot.h"
#include "cli/bench/workload_flags.h"
#include "cli/commands.h"

namespace quire::cli {
namespace {

struct CacheBenchFlags {
  EngineFlags engine;
  bench::CacheBenchOptions options;
  std::string plot;
  bool json = false;
};

absl::Status CheckFlags(const CacheBenchFlags& flags, const Environment& environment) {
  QUIRE_RETURN_IF_ERROR(MakeHostOptions(flags.engine, environment).status());
  if (flags.engine.no_prefix_caching) {
    return InvalidArgument(
        "--no-prefix-caching: two of the modes need prefix caching; the others are without it");
  }
  // Without --num-blocks the pool is as large as the model lets it be.
  constexpr std::int64_t kManyBlocks = std::numeric_limits<std::int32_t>::max();
  const engine::HostOptions& host = flags.engine.host;
  if (host.engine.max_session_blocks(host.num_blocks.value_or(kManyBlocks)) == 0) {
    return InvalidArgument(
        "--session-cache-share: must be at least one block, one of the modes uses sessions");
  }
  return absl::OkStatus();
}

absl::StatusOr<bench::CacheBenchResult> Measure(const CacheBenchFlags& flags,
                                                const CommandContext& context) {
  EngineFlags engine = flags.engine;
  QUIRE_ASSIGN_OR_RETURN(engine.model.model, ResolveModel(flags.engine.model, context));
  bench::CacheBenchResult result{.options = flags.options};
  for (const bench::CacheMode mode : bench::kCacheModes) {
    auto run = bench::RunCacheMode(engine, mode, flags.options, context);
    if (!run.ok()) {
      return absl::Status(
          run.status().code(),
          fmt::format("mode {}: {}", bench::CacheModeName(mode), AsStd(run.status().message())));
    }
    result.modes.push_back(*std::move(run));
  }
  QUIRE_RETURN_IF_ERROR(bench::CheckSameAnswers(result.modes));
  return result;
}

ExitCode CacheBench(const CacheBenchFlags& flags, const CommandContext& context) {
  const absl::Status valid = CheckFlags(flags, context.environment);
  if (!valid.ok()) return context.console.Fail(valid, ExitCode::kUsage);
  const auto result = Measure(flags, context);
  if (!result.ok()) return context.console.Fail(result.status());
  bench::PrintCacheBench(*result, flags.json ? context.console.err : context.console.out);
  if (flags.json) {
    for (const bench::CacheModeResult& mode : result->modes) {
      context.console.out << bench::CacheModeJson(*result, mode).dump() << '\n';
    }
  }
  if (flags.plot.empty()) return ExitCode::kOk;
  const absl::Status written = WriteFileAtomically(flags.plot, bench::CachePlotSvg(*result));
  return written.ok() ? ExitCode::kOk : context.console.Fail(written);
}

}  // namespace

void AddBenchCacheCommand(CLI::App& bench_app, const CommandContext& context, Action* action) {
  auto flags = std::make_shared<CacheBenchFlags>();
  auto* cache = bench_app.add_subcommand("cache", "What the KV cache, and paging it, is worth");
  AddEngineFlags(*cache, &flags->engine)->required();
  bench::CacheBenchOptions* options = &flags->options;
  AddInt(*cache, "--turns", &options->num_turns, {1, 10'000}, "turns of the conversation");
  AddInt(*cache, "--requests", &options->num_requests, {1, 1 << 16},
         "requests of the batch, all at once");
  AddInt(*cache, "--input-len", &options->input_len, {1, 1 << 20},
         "new tokens of a turn, and those after the prefix in the batch");
  AddInt(*cache, "--prefix-len", &options->prefix_len, {1, 1 << 20},
         "tokens that all prompts of the batch start with");
  AddInt(*cache, "--max-tokens", &options->max_tokens, {1, 1 << 20}, "tokens of every answer");
  bench::AddSeed(*cache, &options->seed, "of the prompts");
  AddOutputFile(*cache, "--plot", &flags->plot, "also write an SVG there");
  AddSwitch(*cache, "--json", &flags->json, "one line per mode on stdout, the table on stderr");
  cache->footer(
      "Modes: no_cache (every token recomputes all before it), static (a request gets blocks for\n"
      "--max-model-len tokens when it starts), paged (blocks as needed, nothing shared),\n"
      "paged_prefix (prefixes found again), paged_session (turns continue a session). Each runs\n"
      "one conversation and one batch with a common prefix, greedily, on an engine of its own.\n"
      "Unless all modes answer with the same tokens, nothing is printed and the exit code is 1.\n"
      "\n"
      "Examples:\n"
      "  quire bench cache --model smollm2-135m\n"
      "  quire bench cache --model smollm2-135m --turns 8 --plot cache.svg --json");
  cache->callback([=] { *action = [=] { return CacheBench(*flags, context); }; });
}

}  // namespace quire::cli
