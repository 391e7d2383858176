#include "cli/bench/cache_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "cli/bench/statistics.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/units.h"

namespace quire::cli::bench {
namespace {

using nlohmann::ordered_json;

WorkloadOptions Conversation(const CacheBenchOptions& options) {
  return {.kind = WorkloadKind::kMultiTurn,
          .num_prompts = 1,
          .input_len = options.input_len,
          .output_len = options.max_tokens,
          .num_turns = options.num_turns,
          .seed = options.seed};
}

WorkloadOptions SharedPrefixBatch(const CacheBenchOptions& options) {
  return {.kind = WorkloadKind::kSharedPrefix,
          .num_prompts = options.num_requests,
          .input_len = options.input_len,
          .output_len = options.max_tokens,
          .prefix_len = options.prefix_len,
          .num_prefixes = 1,
          .seed = options.seed};
}

RequestTargetOptions::Past PastOf(CacheMode mode) {
  switch (mode) {
    case CacheMode::kNoCache:
      return RequestTargetOptions::Past::kEveryToken;
    case CacheMode::kStatic:
    case CacheMode::kPaged:
    case CacheMode::kPagedPrefix:
      return RequestTargetOptions::Past::kWholeText;
    case CacheMode::kPagedSession:
      return RequestTargetOptions::Past::kSession;
  }
  return RequestTargetOptions::Past::kWholeText;
}

absl::StatusOr<CacheRun> MakeRun(const std::string& model_id, LocalLoad local) {
  CacheRun run{.model_id = model_id,
               .duration_s = absl::ToDoubleSeconds(local.load.end - local.load.start),
               .usage = local.usage,
               .answers = std::move(local.answers)};
  std::vector<double> ttft_ms;
  for (std::size_t i = 0; i < local.load.records.size(); ++i) {
    const RequestRecord& record = local.load.records[i];
    if (!record.succeeded()) {
      return Aborted("request {} failed: {}", i,
                     record.status.ok() ? "incomplete" : AsStd(record.status.message()));
    }
    run.output_tokens += record.completion_tokens;
    ttft_ms.push_back(absl::ToDoubleMilliseconds(record.arrivals.front().time - record.due));
  }
  const Summary ttft = Summarize(std::move(ttft_ms));
  run.mean_ttft_ms = ttft.mean;
  run.max_ttft_ms = ttft.max;
  return run;
}

absl::StatusOr<CacheRun> RunOnce(const EngineFlags& flags, CacheMode mode,
                                 const WorkloadOptions& workload, const CommandContext& context) {
  QUIRE_ASSIGN_OR_RETURN(const auto target, OpenLocalTarget(flags, context));
  QUIRE_RETURN_IF_ERROR(WarmUp(*target, workload.seed));
  Progress bar(context.console);
  const std::string stage = fmt::format("{}, {}", CacheModeName(mode), WorkloadName(workload.kind));
  QUIRE_ASSIGN_OR_RETURN(
      LocalLoad local,
      RunLocalLoad(*target, {.workload = workload, .requests = {.past = PastOf(mode)}},
                   [&](std::int32_t done, std::int32_t total) { bar.Update(stage, done, total); }));
  return MakeRun(target->host().report.model_name, std::move(local));
}

absl::Status CheckSame(const CacheRun& expected, const CacheRun& run, std::string_view workload,
                       std::string_view expected_mode, std::string_view mode) {
  for (std::size_t i = 0; i < expected.answers.size(); ++i) {
    if (run.answers.size() != expected.answers.size()) {
      return Internal("{}: {} requests in mode {}, {} in mode {}", workload, run.answers.size(),
                      mode, expected.answers.size(), expected_mode);
    }
    const auto& a = expected.answers[i];
    const auto& b = run.answers[i];
    const auto [at_a, at_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    if (at_a == a.end() && at_b == b.end()) continue;
    return Internal(
        "{}: the answer to request {} in mode {} differs from that in mode {} at token "
        "{}; no figures are worth printing",
        workload, i, mode, expected_mode, at_a - a.begin());
  }
  return absl::OkStatus();
}

ordered_json RunJson(const CacheRun& run) {
  const BlockUsage& usage = run.usage;
  return {{"duration_s", run.duration_s},
          {"output_tokens", run.output_tokens},
          {"output_tokens_per_second", run.output_tokens_per_second()},
          {"mean_ttft_ms", run.mean_ttft_ms},
          {"max_ttft_ms", run.max_ttft_ms},
          {"computed_tokens", usage.computed_tokens},
          {"prefix_hit_tokens", usage.prefix_hit_tokens},
          {"mean_bytes_reserved", std::llround(usage.mean_reserved_bytes())},
          {"mean_bytes_useful", std::llround(usage.mean_useful_bytes())},
          {"peak_bytes_active", usage.peak_active_bytes()},
          {"mean_batch", usage.mean_batch},
          {"preemptions", usage.preemptions}};
}

void AddRows(std::string_view workload, CacheRun CacheModeResult::*run,
             const CacheBenchResult& result, Table* table) {
  for (const CacheModeResult& mode : result.modes) {
    const CacheRun& row = mode.*run;
    const auto bytes = [](double value) { return FormatBytes(std::llround(value)); };
    table->AddRow({std::string(workload), std::string(CacheModeName(mode.mode)),
                   fmt::format("{:.1f}", row.output_tokens_per_second()),
                   fmt::format("{:.1f}", row.mean_ttft_ms), fmt::format("{:.1f}", row.max_ttft_ms),
                   FormatCount(row.usage.computed_tokens), bytes(row.usage.mean_reserved_bytes()),
                   bytes(row.usage.mean_useful_bytes()),
                   FormatBytes(row.usage.peak_active_bytes())});
    workload = "";
  }
}

}  // namespace

std::string_view CacheModeName(CacheMode mode) {
  switch (mode) {
    case CacheMode::kNoCache:
      return "no_cache";
    case CacheMode::kStatic:
      return "static";
    case CacheMode::kPaged:
      return "paged";
    case CacheMode::kPagedPrefix:
      return "paged_prefix";
    case CacheMode::kPagedSession:
      return "paged_session";
  }
  return "unknown";
}

EngineFlags FlagsOfMode(const EngineFlags& flags, CacheMode mode) {
  EngineFlags out = flags;
  out.no_prefix_caching = mode != CacheMode::kPagedPrefix && mode != CacheMode::kPagedSession;
  out.host.engine.preallocate = mode == CacheMode::kStatic;
  return out;
}

absl::StatusOr<CacheModeResult> RunCacheMode(const EngineFlags& flags, CacheMode mode,
                                             const CacheBenchOptions& options,
                                             const CommandContext& context) {
  const EngineFlags own = FlagsOfMode(flags, mode);
  CacheModeResult result{.mode = mode};
  QUIRE_ASSIGN_OR_RETURN(result.conversation, RunOnce(own, mode, Conversation(options), context));
  QUIRE_ASSIGN_OR_RETURN(result.shared_prefix,
                         RunOnce(own, mode, SharedPrefixBatch(options), context));
  return result;
}

absl::Status CheckSameAnswers(std::span<const CacheModeResult> modes) {
  for (const CacheModeResult& mode : modes) {
    const CacheModeResult& first = modes.front();
    const std::string_view expected = CacheModeName(first.mode);
    const std::string_view name = CacheModeName(mode.mode);
    QUIRE_RETURN_IF_ERROR(
        CheckSame(first.conversation, mode.conversation, "conversation", expected, name));
    QUIRE_RETURN_IF_ERROR(
        CheckSame(first.shared_prefix, mode.shared_prefix, "shared prefix", expected, name));
  }
  return absl::OkStatus();
}

ordered_json CacheModeJson(const CacheBenchResult& result, const CacheModeResult& mode) {
  const CacheBenchOptions& options = result.options;
  return {{"mode", CacheModeName(mode.mode)},
          {"model_id", result.model_id()},
          {"tokens_identical", true},
          {"turns", options.num_turns},
          {"requests", options.num_requests},
          {"input_len", options.input_len},
          {"prefix_len", options.prefix_len},
          {"max_tokens", options.max_tokens},
          {"seed", options.seed},
          {"conversation", RunJson(mode.conversation)},
          {"shared_prefix", RunJson(mode.shared_prefix)}};
}

void PrintCacheBench(const CacheBenchResult& result, std::ostream& out) {
  Table table({{"workload"},
               {"mode"},
               {"tokens/s", Align::kRight},
               {"TTFT ms", Align::kRight},
               {"max", Align::kRight},
               {"computed", Align::kRight},
               {"reserved", Align::kRight},
               {"useful", Align::kRight},
               {"peak", Align::kRight}});
  AddRows("conversation", &CacheModeResult::conversation, result, &table);
  AddRows("shared prefix", &CacheModeResult::shared_prefix, result, &table);
  table.Print(out);
  out << "The tokens of all answers are the same in all modes. tokens/s: of output; TTFT: mean;\n"
         "computed: tokens, prompts and answers; reserved and useful: KV bytes, means over time.\n";
}

}  // namespace quire::cli::bench
