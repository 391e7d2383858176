// quire bench serve
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/atomic_file.h"
#include "cli/bench/load.h"
#include "cli/bench/report.h"
#include "cli/bench/request_target.h"
#include "cli/bench/workload.h"
#include "cli/bench/workload_flags.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "server/client.h"

namespace quire::cli {
namespace {

// Streams of one connection before another is opened, so that no call waits inside the client.
constexpr std::int32_t kStreamsPerConnection = 64;
constexpr std::int32_t kMaxConnections = 32;

struct BenchFlags {
  std::string server;
  bench::WorkloadOptions workload;
  std::int32_t concurrency = 0;  // 0: not given.
  double request_rate = 0;       // 0: closed loop.
  std::int32_t num_warmups = 4;
  std::int32_t max_failed = 0;
  bool ignore_eos = true;
  std::string output;
  bool json = false;
};

// Watches the server's own numbers while the load runs.
class StatsWatch {
 public:
  explicit StatsWatch(server::Client& client) : client_(client) {
    const auto before = client.GetStats();
    if (before.ok()) preemptions_before_ = before->preemptions();
    call_ = client.WatchStats(
        absl::Milliseconds(50), [state = state_](const v1::Stats& stats) { state->Add(stats); },
        [](const server::CallOutcome&) {});
  }

  bench::ServerSide Stop() {
    call_->Cancel();
    const auto after = client_.GetStats();
    absl::MutexLock lock(&state_->mutex);
    if (after.ok()) state_->side.preemptions = after->preemptions() - preemptions_before_;
    return state_->side;
  }

 private:
  struct State {
    void Add(const v1::Stats& stats) {
      absl::MutexLock lock(&mutex);
      side.kv_blocks_capacity = stats.blocks().capacity();
      side.peak_kv_blocks = std::max(side.peak_kv_blocks, stats.blocks().active());
      side.peak_requests =
          std::max(side.peak_requests, stats.requests().running() + stats.requests().queued());
      ++side.num_samples;
    }
    absl::Mutex mutex;
    bench::ServerSide side ABSL_GUARDED_BY(mutex);
  };

  server::Client& client_;
  std::int64_t preemptions_before_ = 0;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::shared_ptr<server::Call> call_;
};

std::int32_t ConnectionsFor(const BenchFlags& flags) {
  const std::int32_t in_flight =
      flags.concurrency > 0 ? flags.concurrency : flags.workload.num_prompts;
  return std::clamp((in_flight + kStreamsPerConnection - 1) / kStreamsPerConnection, 1,
                    kMaxConnections);
}

absl::StatusOr<std::unique_ptr<bench::RequestTarget>> MakeTarget(
    server::Client& client, const BenchFlags& flags, const bench::WorkloadOptions& workload) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<bench::BenchRequest> requests, bench::MakeWorkload(workload));
  using AtEos = bench::RequestTargetOptions::AtEos;
  return std::make_unique<bench::RequestTarget>(
      [&client](const v1::GenerateRequest& request, server::Client::OnResponse on_response,
                server::Client::OnDone on_done) {
        client.Generate(request, {}, std::move(on_response), std::move(on_done));
      },
      std::move(requests),
      bench::RequestTargetOptions{.at_eos = flags.ignore_eos ? AtEos::kGoOn : AtEos::kStop});
}

// Requests like those of the test, but other ones, so that none of the test's prompts is cached.
// Failures are told on `err`; the test then shows whether they matter.
absl::Status WarmUp(server::Client& client, const BenchFlags& flags, std::ostream& err) {
  if (flags.num_warmups == 0) return absl::OkStatus();
  bench::WorkloadOptions workload = flags.workload;
  workload.num_prompts = flags.num_warmups;
  workload.seed = ~workload.seed;
  QUIRE_ASSIGN_OR_RETURN(const auto target, MakeTarget(client, flags, workload));
  const auto report = bench::MakeReport(
      {}, bench::RunLoad({.num_requests = workload.num_prompts, .max_concurrency = 4}, *target, {}),
      {});
  for (const auto& [code, failures] : report.errors) {
    err << fmt::format("warning: {} of {} failed, first: {}: {}\n", failures.count,
                       Counted(flags.num_warmups, "warm-up"), code, failures.first_message);
  }
  return absl::OkStatus();
}

absl::StatusOr<bench::BenchReport> RunBench(BenchFlags flags, const CommandContext& context) {
  QUIRE_ASSIGN_OR_RETURN(
      const auto client,
      server::Client::Connect({.target = flags.server, .num_connections = ConnectionsFor(flags)}));
  QUIRE_ASSIGN_OR_RETURN(const auto model, client->GetModelInfo());
  flags.workload.vocab_size = model.vocab_size();
  flags.workload.max_model_len = model.max_model_len();
  QUIRE_RETURN_IF_ERROR(WarmUp(*client, flags, context.console.err));

  bench::LoadOptions load{.num_requests = flags.workload.num_prompts,
                          .max_concurrency = flags.concurrency};
  if (flags.request_rate > 0) {
    load.arrivals =
        bench::PoissonArrivals(load.num_requests, flags.request_rate, flags.workload.seed);
  }
  const bench::BenchSettings settings{
      .date = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()),
      .model_id = model.served_model_name(),
      .workload = bench::WorkloadName(flags.workload.kind),
      .request_rate = flags.request_rate,
      .max_concurrency = flags.concurrency,
      .num_prompts = load.num_requests,
      .seed = flags.workload.seed};
  QUIRE_ASSIGN_OR_RETURN(const auto target, MakeTarget(*client, flags, flags.workload));
  StatsWatch watch(*client);
  Progress bar(context.console);
  const bench::LoadResult result = bench::RunLoad(
      load, *target, [&](std::int32_t done) { bar.Update("requests", done, load.num_requests); });
  return bench::MakeReport(settings, result, watch.Stop());
}

ExitCode BenchServe(BenchFlags flags, const CommandContext& context) {
  if (flags.request_rate == 0 && flags.concurrency == 0) flags.concurrency = 16;
  const auto report = RunBench(flags, context);
  if (!report.ok()) return context.console.Fail(report.status());
  const std::string json = bench::ReportJson(*report).dump();
  if (flags.json) {
    bench::PrintReport(*report, context.console.err);
    context.console.out << json << std::endl;
  } else {
    bench::PrintReport(*report, context.console.out);
  }
  if (!flags.output.empty()) {
    const absl::Status written = WriteFileAtomically(flags.output, json + "\n");
    if (!written.ok()) return context.console.Fail(written);
  }
  if (report->failed <= flags.max_failed) return ExitCode::kOk;
  return context.console.Fail(Aborted("{} failed, --max-failed allows {}",
                                      Counted(report->failed, "request"), flags.max_failed));
}

// Requests here know nothing of each other, so there are no conversations.
std::vector<std::pair<std::string, bench::WorkloadKind>> SingleTurnWorkloads() {
  auto names = bench::WorkloadNames();
  std::erase_if(names,
                [](const auto& name) { return name.second == bench::WorkloadKind::kMultiTurn; });
  return names;
}

}  // namespace

void AddBenchCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto* bench_app = app.add_subcommand("bench", "Measure a server or a model");
  bench_app->require_subcommand(1);
  bench_app->footer(
      "Examples:\n"
      "  quire bench serve --server 127.0.0.1:50051\n"
      "  quire bench throughput --model smollm2-135m --workload alpaca\n"
      "  quire bench cache --model smollm2-135m");

  auto flags = std::make_shared<BenchFlags>();
  auto* serve = bench_app->add_subcommand("serve", "Send load to a server and measure it");
  AddServer(*serve, &flags->server, "a running quire serve")->required();
  AddInt(*serve, "--concurrency", &flags->concurrency, {0, 1 << 16},
         "closed loop: requests in flight (default 16); with --request-rate: at most so many, and "
         "the rest waits here");
  AddDouble(*serve, "--request-rate", &flags->request_rate, 0, 1e6,
            "open loop: Poisson arrivals per second; 0: closed loop");
  AddInt(*serve, "--num-warmups", &flags->num_warmups, {0, 1 << 16}, "requests before the test");
  bench::AddWorkloadFlags(*serve, SingleTurnWorkloads(), &flags->workload);
  serve->add_flag("--ignore-eos,!--no-ignore-eos", flags->ignore_eos,
                  "answers have exactly the asked length (default)");
  AddInt(*serve, "--max-failed", &flags->max_failed, {0, 10'000'000},
         "more failed requests make the exit code 1");
  AddOutputFile(*serve, "--output", &flags->output, "also write the JSON there");
  AddSwitch(*serve, "--json", &flags->json, "JSON on stdout, the table on stderr");
  serve->footer(
      "An open loop sends every request when it is due, whatever the server does, and measures\n"
      "from then. Percentiles are nearest-rank over all requests that succeeded; token counts are\n"
      "the server's. JSON keys are those of vllm bench serve, with peak_kv_blocks and "
      "preemptions.\n"
      "The same --seed sends the same prompts, which a server that has seen them finds in its\n"
      "prefix cache: give another --seed to a second test of the same server.\n\n"
      "Examples:\n"
      "  quire bench serve --server 127.0.0.1:50051 --concurrency 16\n"
      "  quire bench serve --server 127.0.0.1:50051 --request-rate 4 --num-prompts 200 --json\n"
      "  quire bench serve --server 127.0.0.1:50051 --workload shared-prefix --prefix-len 512");
  serve->callback([=] { *action = [=] { return BenchServe(*flags, context); }; });
  AddBenchThroughputCommand(*bench_app, context, action);
  AddBenchCacheCommand(*bench_app, context, action);
}

}  // namespace quire::cli
