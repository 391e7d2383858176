// How well the simulator foretells the real engine: fits step times to the steps of one trace, then
// serves another trace and simulates it, and prints the mean absolute percentage errors of TTFT and
// end-to-end latency as one JSON line. Verifies first that every request got its whole answer.
//   build/release/benchmarks/simulator_accuracy --model SmolLM2-135M-Instruct.Q4_1.gguf
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/decoder_runner.h"
#include "engine/engine.h"
#include "engine/model/decoder.h"
#include "engine/model/model.h"
#include "engine/step_log.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "simulator/simulation.h"
#include "simulator/system_factory.h"
#include "simulator/workload.h"

namespace quire {
namespace {

using simulator::MeasuredStep;
using simulator::Request;

struct Flags {
  std::string model;
  int threads = 2;
  int num_requests = 60;
  double request_rate = 2;
  double mean_input = 96, mean_output = 48;
  std::int64_t num_blocks = 512;
};

// Collects the ends of requests.
class EndSink final : public engine::OutputSink {
 public:
  void OnOutput(std::vector<std::shared_ptr<engine::TokenStream>> streams) override {
    absl::MutexLock lock(&mutex_);
    for (const auto& stream : streams) {
      engine::StreamChunk chunk = stream->Take();
      for (engine::Finished& finished : chunk.finished) {
        ends_[stream->request_id()] = std::move(finished);
      }
    }
  }
  std::map<std::string, engine::Finished> WaitFor(std::size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ends_.size() >= count; };
    mutex_.Await(absl::Condition(&enough));
    return std::exchange(ends_, {});
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, engine::Finished> ends_ ABSL_GUARDED_BY(mutex_);
};

class StepCollector {
 public:
  void Add(const engine::TimedStep& step) {
    absl::MutexLock lock(&mutex_);
    steps_.push_back({.work = {.prefill_tokens = step.prefill_tokens,
                               .decode_sequences = step.decode_sequences,
                               .context_tokens = step.context_tokens},
                      .seconds = absl::ToDoubleSeconds(step.duration)});
  }
  std::vector<MeasuredStep> Take() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(steps_, {});
  }

 private:
  absl::Mutex mutex_;
  std::vector<MeasuredStep> steps_ ABSL_GUARDED_BY(mutex_);
};

struct Served {
  std::vector<Request> requests;  // With the moments at which they were sent.
  std::vector<double> ttft_s, latency_s;
  std::vector<MeasuredStep> steps;
};

class Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Flags& flags) {
    auto server = std::make_unique<Server>();
    QUIRE_ASSIGN_OR_RETURN(const auto files, engine::model::OpenModel(flags.model));
    QUIRE_ASSIGN_OR_RETURN(server->backend_,
                           kernels::NewCpuBackend({.isa = "", .threads = flags.threads}));
    server->options_.scheduler.max_model_len = 2048;
    const engine::model::DecoderOptions decoder_options{
        .max_batched_tokens = server->options_.scheduler.max_num_batched_tokens,
        .max_positions = server->options_.scheduler.max_model_len};
    QUIRE_ASSIGN_OR_RETURN(
        auto decoder, engine::model::Decoder::Load(*files, *server->backend_, decoder_options, {}));
    server->num_blocks_ = flags.num_blocks;
    QUIRE_ASSIGN_OR_RETURN(
        std::unique_ptr<engine::ModelRunner> runner,
        engine::DecoderRunner::Create(
            std::move(decoder), decoder_options, *server->backend_,
            engine::model::KvGeometryFor(files->config(), kBlockSize, KvDtype::kF16),
            flags.num_blocks));
    QUIRE_ASSIGN_OR_RETURN(
        server->engine_,
        engine::Engine::Create(
            server->options_,
            engine::TimeSteps(std::move(runner), Clock::Real(),
                              [&log = server->steps_](const auto& step) { log.Add(step); }),
            nullptr, nullptr, {}, &server->sink_));
    return server;
  }

  // Sends the requests when they are due and waits for their answers.
  absl::StatusOr<Served> Serve(std::vector<Request> requests) {
    steps_.Take();
    const absl::Time start = Clock::Real().Now();
    std::vector<std::string> ids;
    for (Request& request : requests) {
      absl::SleepFor(start + request.arrival - Clock::Real().Now());
      engine::GenerationRequest generation;
      generation.prompt = engine::TokenPrompt{InVocabulary(request.PromptTokens())};
      generation.sampling.temperature = 0;
      generation.sampling.max_tokens = request.output_len;
      generation.sampling.ignore_eos = true;
      request.arrival = Clock::Real().Now() - start;
      QUIRE_ASSIGN_OR_RETURN(const auto stream, engine_->Submit(std::move(generation)));
      ids.push_back(stream->request_id());
    }
    const auto ends = sink_.WaitFor(ids.size());
    Served served;
    served.requests = std::move(requests);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const engine::Finished& end = ends.at(ids[i]);
      if (end.completion_tokens != served.requests[i].output_len) {
        return Internal("request {} has {} tokens, not {}", i, end.completion_tokens,
                        served.requests[i].output_len);
      }
      served.ttft_s.push_back(absl::ToDoubleSeconds(end.timings.time_to_first_token));
      served.latency_s.push_back(
          absl::ToDoubleSeconds(end.timings.time_to_first_token + end.timings.decode));
    }
    served.steps = steps_.Take();
    return served;
  }

  simulator::SystemOptions SimulatedSystem() const {
    return {.num_slots = num_blocks_ * kBlockSize,
            .block_size = kBlockSize,
            .scheduler = options_.scheduler};
  }

 private:
  static constexpr std::int32_t kBlockSize = 16;

  std::vector<TokenId> InVocabulary(std::vector<TokenId> tokens) const {
    for (TokenId& token : tokens) token %= engine_->vocab_size();
    return tokens;
  }

  std::unique_ptr<kernels::Backend> backend_;
  EndSink sink_;
  StepCollector steps_;
  engine::EngineOptions options_;
  std::int64_t num_blocks_ = 0;
  std::unique_ptr<engine::Engine> engine_;  // Ends before what it borrows.
};

std::vector<Request> Trace(const Flags& flags, std::uint64_t seed) {
  return simulator::MakeWorkload(
      {.num_requests = flags.num_requests,
       .input = {.mean = flags.mean_input, .sigma = 0.8, .min = 4, .max = 1024},
       .output = {.mean = flags.mean_output, .sigma = 0.6, .min = 4, .max = 512},
       .request_rate = flags.request_rate,
       .seed = seed});
}

double MeanError(const std::vector<double>& real, const std::vector<double>& simulated) {
  double sum = 0;
  for (std::size_t i = 0; i < real.size(); ++i) {
    sum += std::abs(simulated[i] - real[i]) / real[i];
  }
  return 100 * sum / static_cast<double>(real.size());
}

absl::Status Run(const Flags& flags) {
  QUIRE_ASSIGN_OR_RETURN(const auto server, Server::Start(flags));
  QUIRE_RETURN_IF_ERROR(server->Serve(Trace(flags, 3)).status());  // Warms up.
  QUIRE_ASSIGN_OR_RETURN(const Served fitted_on, server->Serve(Trace(flags, 1)));
  QUIRE_ASSIGN_OR_RETURN(const auto model, simulator::StepTimeModel::Fit(fitted_on.steps));
  QUIRE_ASSIGN_OR_RETURN(const Served real, server->Serve(Trace(flags, 2)));

  const simulator::SimulationResult simulated =
      simulator::Simulate({.step_time = model}, real.requests,
                          [&] { return simulator::MakeSystem(server->SimulatedSystem()); });
  std::vector<double> ttft_s, latency_s;
  for (const simulator::RequestOutcome& outcome : simulated.requests) {
    ttft_s.push_back(outcome.ttft_s());
    latency_s.push_back(outcome.latency_s());
  }
  const nlohmann::ordered_json line = {
      {"name", "simulator_accuracy"},
      {"requests", flags.num_requests},
      {"request_rate", flags.request_rate},
      {"threads", flags.threads},
      {"fitted_on_steps", fitted_on.steps.size()},
      {"fixed_ms", 1e3 * model.fixed_s},
      {"prefill_token_us", 1e6 * model.per_prefill_token_s},
      {"decode_sequence_us", 1e6 * model.per_decode_sequence_s},
      {"context_token_us", 1e6 * model.per_context_token_s},
      {"steps", real.steps.size()},
      {"simulated_steps", simulated.num_steps},
      {"ttft_error_percent", MeanError(real.ttft_s, ttft_s)},
      {"ttft_bound_percent", 10},
      {"latency_error_percent", MeanError(real.latency_s, latency_s)},
      {"latency_bound_percent", 5}};
  fmt::print("{}\n", line.dump());
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  quire::Flags flags;
  CLI::App app("How well the simulator foretells the real engine");
  app.add_option("--model", flags.model, "a GGUF file or a Hugging Face folder")->required();
  app.add_option("--threads", flags.threads)->capture_default_str();
  app.add_option("--num-requests", flags.num_requests)->capture_default_str();
  app.add_option("--request-rate", flags.request_rate, "a second")->capture_default_str();
  app.add_option("--input-len", flags.mean_input)->capture_default_str();
  app.add_option("--output-len", flags.mean_output)->capture_default_str();
  app.add_option("--num-blocks", flags.num_blocks)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = quire::Run(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "error: {}\n", quire::AsStd(status.message()));
  return 1;
}
