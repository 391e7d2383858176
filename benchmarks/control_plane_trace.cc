// Runs scheduler and block manager by themselves through a trace of requests, with made-up output
// tokens, and prints one JSON line: how long Schedule and Apply took, and what they decided.
// benchmarks/control_plane_vs_vllm writes traces and runs vLLM's scheduler through the same ones.
//
// The first line of a trace holds the settings, each further one a request:
//   {"num_blocks": 4096, "block_size": 16, "max_num_seqs": 256, "max_num_batched_tokens": 8192,
//    "max_model_len": 4096}             and "watermark" for another share than the default
//   {"arrival_step": 0, "prompt": [11, 12, 13], "output_tokens": 100}
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"

namespace quire::benchmarks {
namespace {

using block_manager::BlockManager;
using block_manager::BlockManagerOptions;
using nlohmann::json;
using scheduler::ScheduledSequence;
using scheduler::Scheduler;
using scheduler::SchedulerOptions;
using scheduler::StepPlan;
using scheduler::StepResult;

struct Request {
  std::int64_t arrival_step = 0;
  std::vector<TokenId> prompt;
  std::int32_t output_tokens = 0;
};

struct Trace {
  BlockManagerOptions blocks;
  SchedulerOptions scheduler;
  std::vector<Request> requests;  // By arrival.
};

// What a model might have said; the Python side says the same.
TokenId OutputToken(std::int64_t request, std::int64_t index) {
  return static_cast<TokenId>((request * 7919 + index * 31 + 17) % 32000);
}

Trace ReadTrace(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const json settings = json::parse(line);
  Trace trace;
  trace.blocks.num_blocks = settings.at("num_blocks");
  trace.blocks.block_size = settings.at("block_size");
  trace.scheduler.max_num_seqs = settings.at("max_num_seqs");
  trace.scheduler.max_num_batched_tokens = settings.at("max_num_batched_tokens");
  trace.scheduler.max_model_len = settings.at("max_model_len");
  trace.scheduler.watermark = settings.value("watermark", trace.scheduler.watermark);
  // vLLM has no such cap, so neither side gets one.
  trace.scheduler.max_prefill_tokens = trace.scheduler.max_num_batched_tokens;
  for (const absl::Status& status : {trace.blocks.Validate(), trace.scheduler.Validate()}) {
    if (!status.ok()) throw std::invalid_argument(status.ToString());
  }
  while (std::getline(file, line)) {
    const json request = json::parse(line);
    trace.requests.push_back(
        {request.at("arrival_step"), request.at("prompt"), request.at("output_tokens")});
  }
  return trace;
}

// Adds up the time between Start and Stop: as it passed, and as this thread was running.
class Stopwatch {
 public:
  void Start() {
    cpu_ -= Now(CLOCK_THREAD_CPUTIME_ID);
    wall_ -= Now(CLOCK_MONOTONIC);
  }
  void Stop() {
    wall_ += Now(CLOCK_MONOTONIC);
    cpu_ += Now(CLOCK_THREAD_CPUTIME_ID);
  }
  double wall_seconds() const { return static_cast<double>(wall_) * 1e-9; }
  double cpu_seconds() const { return static_cast<double>(cpu_) * 1e-9; }

 private:
  static std::int64_t Now(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  std::int64_t wall_ = 0;
  std::int64_t cpu_ = 0;
};

class Run {
 public:
  explicit Run(Trace trace)
      : trace_(std::move(trace)),
        outputs_(trace_.requests.size()),
        blocks_(trace_.blocks),
        scheduler_(trace_.scheduler, &blocks_) {}

  json Execute() {
    for (std::int64_t step = 0; next_ < trace_.requests.size() || scheduler_.has_work(); ++step) {
      AddArrivals(step);
      if (scheduler_.has_work()) Step();
    }
    return Report();
  }

 private:
  void AddArrivals(std::int64_t step) {
    for (; next_ < trace_.requests.size() && trace_.requests[next_].arrival_step <= step; ++next_) {
      Request& request = trace_.requests[next_];
      scheduler::NewSequence sequence{.id = SequenceId{next_}, .prompt = std::move(request.prompt)};
      sequence.max_total_tokens =
          static_cast<std::int32_t>(sequence.prompt.size()) + request.output_tokens;
      sequence.arrival = absl::FromUnixMicros(static_cast<std::int64_t>(next_));
      scheduler_.Add(std::move(sequence));
    }
  }

  void Step() {
    time_.Start();
    const StepPlan& plan = scheduler_.Schedule(absl::UnixEpoch());
    time_.Stop();
    if (!plan.terminated.empty()) throw std::runtime_error("the scheduler ended a request");
    scheduled_tokens_ += plan.num_tokens;
    PretendToCompute(plan);
    time_.Start();
    scheduler_.Apply(result_);
    time_.Stop();
    ++steps_;
  }

  void PretendToCompute(const StepPlan& plan) {
    result_.sequences.clear();
    for (const ScheduledSequence& sequence : plan.scheduled) {
      if (!sequence.samples) continue;
      const std::uint64_t request = sequence.id.value();
      std::int32_t& output = outputs_[request];
      const TokenId token = OutputToken(static_cast<std::int64_t>(request), output);
      const bool finished = ++output == trace_.requests[request].output_tokens;
      result_.sequences.push_back({sequence.id, {token}, finished});
      ++output_tokens_;
      if (finished) ++finished_;
    }
  }

  json Report() const {
    const scheduler::SchedulerStats stats = scheduler_.stats();
    return {{"engine", "quire"},
            {"steps", steps_},
            {"finished", finished_},
            {"output_tokens", output_tokens_},
            {"scheduled_tokens", scheduled_tokens_},
            {"preemptions", stats.num_preemptions},
            {"recomputed_tokens", stats.recomputed_tokens},
            {"hit_tokens", stats.prefix_hit_tokens},
            {"hit_tokens_after_preemption", stats.prefix_hit_tokens_after_preemption},
            {"seconds", time_.wall_seconds()},
            {"cpu_seconds", time_.cpu_seconds()},
            {"us_per_step", time_.wall_seconds() * 1e6 / static_cast<double>(steps_)}};
  }

  Trace trace_;
  std::vector<std::int32_t> outputs_;  // Tokens so far, by request.
  BlockManager blocks_;
  Scheduler scheduler_;
  StepResult result_;
  Stopwatch time_;
  std::size_t next_ = 0;  // The next request to arrive.
  std::int64_t steps_ = 0;
  std::int64_t finished_ = 0;
  std::int64_t output_tokens_ = 0;
  std::int64_t scheduled_tokens_ = 0;
};

}  // namespace
}  // namespace quire::benchmarks

int main(int argc, char** argv) {
  CLI::App app("Scheduler and block manager on a trace of requests, without a model.");
  std::string path;
  app.add_option("trace", path, "A trace file.")->required()->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  try {
    quire::benchmarks::Run run(quire::benchmarks::ReadTrace(path));
    fmt::print("{}\n", run.Execute().dump());
  } catch (const std::exception& error) {
    fmt::print(stderr, "control_plane_trace: {}\n", error.what());
    return 1;
  }
}
