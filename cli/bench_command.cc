// quire bench serve
#include <deque>
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
#include "cli/bench/workload.h"
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

// A server under load, reached over gRPC.
class ServerTarget final : public bench::LoadTarget {
 public:
  enum class AtEos { kGoOn, kStop };
  ServerTarget(server::Client& client, std::vector<bench::BenchRequest> requests, AtEos at_eos)
      : client_(client),
        requests_(std::move(requests)),
        at_eos_(at_eos),
        queue_(std::make_shared<Queue>()) {}

  absl::Time Now() override { return Clock::Real().Now(); }

  void Send(std::int32_t index) override {
    const bench::BenchRequest& request = requests_[static_cast<std::size_t>(index)];
    v1::GenerateRequest message;
    message.mutable_token_ids()->mutable_ids()->Assign(request.prompt.begin(),
                                                       request.prompt.end());
    v1::SamplingParams* sampling = message.mutable_sampling();
    sampling->set_max_tokens(request.output_len);
    sampling->set_ignore_eos(at_eos_ == AtEos::kGoOn);
    sampling->set_temperature(0);
    client_.Generate(
        message, {},
        [queue = queue_, index](const v1::GenerateResponse& response) {
          queue->PushResponse(index, response);
        },
        [queue = queue_, index](const server::CallOutcome& outcome) {
          queue->Push({.kind = bench::LoadEvent::Kind::kDone,
                       .request = index,
                       .time = Clock::Real().Now(),
                       .status = outcome.status});
        });
  }

  std::vector<bench::LoadEvent> WaitUntil(absl::Time until) override {
    return queue_->Take(until - Now());
  }

 private:
  // From the client's thread to the load generator's. Shared with callbacks still on their way.
  class Queue {
   public:
    void Push(bench::LoadEvent event) {
      absl::MutexLock lock(&mutex_);
      events_.push_back(std::move(event));
    }
    void PushResponse(std::int32_t index, const v1::GenerateResponse& response) {
      bench::LoadEvent event{.request = index, .time = Clock::Real().Now()};
      if (response.has_delta() && response.delta().token_ids_size() > 0) {
        event.kind = bench::LoadEvent::Kind::kTokens;
        event.num_tokens = response.delta().token_ids_size();
      } else if (response.has_finished()) {
        const v1::Usage& usage = response.finished().usage();
        event.kind = bench::LoadEvent::Kind::kFinished;
        event.prompt_tokens = usage.prompt_tokens();
        event.cached_tokens = usage.cached_tokens();
        event.completion_tokens = usage.completion_tokens();
      } else {
        return;
      }
      Push(std::move(event));
    }
    std::vector<bench::LoadEvent> Take(absl::Duration at_most) {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(
          absl::Condition(
              +[](std::vector<bench::LoadEvent>* events) { return !events->empty(); }, &events_),
          at_most);
      return std::exchange(events_, {});
    }

   private:
    absl::Mutex mutex_;
    std::vector<bench::LoadEvent> events_ ABSL_GUARDED_BY(mutex_);
  };

  server::Client& client_;
  const std::vector<bench::BenchRequest> requests_;
  const AtEos at_eos_;
  const std::shared_ptr<Queue> queue_;
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

ServerTarget::AtEos AtEosOf(const BenchFlags& flags) {
  return flags.ignore_eos ? ServerTarget::AtEos::kGoOn : ServerTarget::AtEos::kStop;
}

// Requests like those of the test, but other ones, so that none of the test's prompts is cached.
void WarmUp(server::Client& client, const BenchFlags& flags) {
  bench::WorkloadOptions workload = flags.workload;
  workload.num_prompts = flags.num_warmups;
  workload.seed = ~workload.seed;
  ServerTarget target(client, bench::MakeWorkload(workload), AtEosOf(flags));
  bench::RunLoad({.num_requests = workload.num_prompts, .max_concurrency = 4}, target, {});
}

absl::StatusOr<bench::BenchReport> RunBench(BenchFlags flags, const CommandContext& context) {
  QUIRE_ASSIGN_OR_RETURN(
      const auto client,
      server::Client::Connect({.target = flags.server, .num_connections = ConnectionsFor(flags)}));
  QUIRE_ASSIGN_OR_RETURN(const auto model, client->GetModelInfo());
  flags.workload.vocab_size = model.vocab_size();
  WarmUp(*client, flags);

  bench::LoadOptions load{.num_requests = flags.workload.num_prompts,
                          .max_concurrency = flags.concurrency};
  if (flags.request_rate > 0) {
    load.arrivals =
        bench::PoissonArrivals(load.num_requests, flags.request_rate, flags.workload.seed);
  }
  const bench::BenchSettings settings{
      .date = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()),
      .model_id = model.served_model_name(),
      .workload = flags.workload.kind == bench::WorkloadKind::kRandom ? "random" : "shared-prefix",
      .request_rate = flags.request_rate,
      .max_concurrency = flags.concurrency,
      .num_prompts = load.num_requests,
      .seed = flags.workload.seed};
  ServerTarget target(*client, bench::MakeWorkload(flags.workload), AtEosOf(flags));
  StatsWatch watch(*client);
  Progress bar(context.console);
  const bench::LoadResult result = bench::RunLoad(
      load, target, [&](std::int32_t done) { bar.Update("requests", done, load.num_requests); });
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
  return context.console.Fail(
      Aborted("{} requests failed, --max-failed allows {}", report->failed, flags.max_failed));
}

void AddWorkloadFlags(CLI::App& app, bench::WorkloadOptions* workload) {
  AddChoice<bench::WorkloadKind>(app, "--workload", &workload->kind,
                                 {{"random", bench::WorkloadKind::kRandom},
                                  {"shared-prefix", bench::WorkloadKind::kSharedPrefix}},
                                 "nothing shared, or prompts with common prefixes");
  AddInt(app, "--num-prompts", &workload->num_prompts, {1, 10'000'000}, "requests to send");
  AddInt(app, "--input-len", &workload->input_len, {1, 1 << 24}, "tokens of a prompt");
  AddInt(app, "--output-len", &workload->output_len, {1, 1 << 24}, "tokens of an answer");
  AddDouble(app, "--range-ratio", &workload->range_ratio, 0, 1,
            "both lengths vary by up to this share");
  AddInt(app, "--prefix-len", &workload->prefix_len, {1, 1 << 24},
         "shared-prefix: tokens before those of --input-len");
  AddInt(app, "--num-prefixes", &workload->num_prefixes, {1, 1 << 20},
         "shared-prefix: different prefixes");
  AddParsed<std::uint64_t>(
      app, "--seed", [](const std::string& text) { return ParseUint(text); },
      [workload](std::uint64_t seed) { workload->seed = seed; }, "of prompts and arrivals", "N")
      ->default_str("0");
}

}  // namespace

void AddBenchCommand(CLI::App& app, const CommandContext& context, Action* action) {
  auto* bench_app = app.add_subcommand("bench", "Measure a server");
  bench_app->require_subcommand(1);
  bench_app->footer("Example:\n  quire bench serve --server 127.0.0.1:50051");

  auto flags = std::make_shared<BenchFlags>();
  auto* serve = bench_app->add_subcommand("serve", "Send load to a server and measure it");
  AddServer(*serve, &flags->server, "a running quire serve")->required();
  AddInt(*serve, "--concurrency", &flags->concurrency, {0, 1 << 16},
         "closed loop: requests in flight (default 16); with --request-rate: at most so many, and "
         "the rest waits here");
  AddDouble(*serve, "--request-rate", &flags->request_rate, 0, 1e6,
            "open loop: Poisson arrivals per second; 0: closed loop");
  AddInt(*serve, "--num-warmups", &flags->num_warmups, {0, 1 << 16}, "requests before the test");
  AddWorkloadFlags(*serve, &flags->workload);
  serve->add_flag("--ignore-eos,!--no-ignore-eos", flags->ignore_eos,
                  "answers have exactly the asked length (default)");
  AddInt(*serve, "--max-failed", &flags->max_failed, {0, 10'000'000},
         "more failed requests make the exit code 1");
  serve->add_option("--output", flags->output, "also write the JSON there")->type_name("FILE");
  AddSwitch(*serve, "--json", &flags->json, "JSON on stdout, the table on stderr");
  serve->footer(
      "An open loop sends every request when it is due, whatever the server does, and measures\n"
      "from then. Percentiles are nearest-rank over all requests that succeeded; token counts are\n"
      "the server's. JSON keys are those of vllm bench serve, with peak_kv_blocks and "
      "preemptions.\n\n"
      "Examples:\n"
      "  quire bench serve --server 127.0.0.1:50051 --concurrency 16\n"
      "  quire bench serve --server 127.0.0.1:50051 --request-rate 4 --num-prompts 200 --json\n"
      "  quire bench serve --server 127.0.0.1:50051 --workload shared-prefix --prefix-len 512");
  serve->callback([=] { *action = [=] { return BenchServe(*flags, context); }; });
}

}  // namespace quire::cli
