// On the same trace the simulator and the real engine (on a model without weights) make the same
// steps, hold the same blocks, preempt as often and hit as many tokens.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/philox.h"
#include "simulator/paged_system.h"
#include "simulator/simulation.h"
#include "tests/engine/engine_harness.h"
#include "tests/simulator/simulation_world.h"

namespace quire::simulator {
namespace {

struct StepRecord {
  std::int64_t num_sequences = 0, num_tokens = 0, context_tokens = 0;
  std::int64_t active = 0, cached = 0, useful = 0;  // As published before the step.
  friend bool operator==(const StepRecord&, const StepRecord&) = default;
};
std::ostream& operator<<(std::ostream& out, const StepRecord& r) {
  return out << r.num_sequences << " sequences, " << r.num_tokens << " tokens, " << r.context_tokens
             << " of context; before it " << r.active << " active, " << r.cached << " cached, "
             << r.useful << " useful";
}

// A request and the step during which it arrives. Step 0 is that of a request of its own.
struct Arrival {
  std::int32_t step = 0;
  std::vector<TokenId> prompt;
  std::int32_t output_len = 1;
  std::int32_t num_branches = 1;
  std::string session = {};
};

struct Outcome {
  std::vector<StepRecord> steps;
  scheduler::SchedulerStats scheduler;
  block_manager::BlockStats blocks;
};

// Looks at a PagedSystem from the side.
class RecordingSystem final : public ServingSystem {
 public:
  RecordingSystem(const block_manager::BlockManagerOptions& blocks,
                  const scheduler::SchedulerOptions& options, Outcome* outcome)
      : system_(blocks, options), outcome_(outcome) {}

  absl::Status CheckFits(const Request& request) const override {
    return system_.CheckFits(request);
  }
  void Add(std::int32_t index, const Request& request, std::vector<TokenId> prompt,
           absl::Time now) override {
    system_.Add(index, request, std::move(prompt), now);
  }
  bool has_work() const override { return system_.has_work(); }
  std::int64_t num_waiting() const override { return system_.num_waiting(); }
  std::int64_t num_running() const override { return system_.num_running(); }
  StepWork BeginStep(absl::Time now, std::vector<Happening>* happenings) override {
    const block_manager::BlockStats before = system_.block_stats();
    const StepWork work = system_.BeginStep(now, happenings);
    if (!work.empty()) {
      outcome_->steps.push_back({work.num_sequences, work.num_tokens(), work.context_tokens,
                                 before.active, before.cached, before.useful_slots});
    }
    return work;
  }
  MemoryUse memory() const override { return system_.memory(); }
  void EndStep(absl::Duration took, std::vector<Happening>* happenings) override {
    system_.EndStep(took, happenings);
    outcome_->blocks = system_.block_stats();
  }
  Counters counters() const override { return system_.counters(); }

 private:
  PagedSystem system_;
  Outcome* outcome_;
};

engine::HarnessOptions EngineWith(std::int64_t num_blocks) {
  engine::HarnessOptions options;
  options.model.num_blocks = num_blocks;
  return options;
}

Outcome RunSimulator(const engine::HarnessOptions& options, const std::vector<Arrival>& arrivals,
                     Counters* counters) {
  std::vector<Request> requests = {{.prompt_ids = {299}, .output_len = 1}};
  for (const Arrival& arrival : arrivals) {
    Request request{.arrival = absl::Seconds(arrival.step + 0.5),
                    .prompt_ids = arrival.prompt,
                    .output_len = arrival.output_len,
                    .num_branches = arrival.num_branches,
                    .output_stream = requests.size()};
    if (arrival.num_branches == 1) {
      request.output_ids = fakes::FakeModelRunner::Greedy(arrival.prompt, arrival.output_len,
                                                          options.model.vocab_size);
      request.session = arrival.session;
    }
    requests.push_back(std::move(request));
  }
  Outcome outcome;
  const SimulationResult result =
      Simulate({.step_time = kEvenSteps}, requests, [&]() -> std::unique_ptr<ServingSystem> {
        return std::make_unique<RecordingSystem>(
            block_manager::BlockManagerOptions{.num_blocks = options.model.num_blocks,
                                               .block_size = options.model.block_size},
            options.engine.scheduler, &outcome);
      });
  for (const RequestOutcome& request : result.requests) {
    EXPECT_EQ(request.end, RequestOutcome::End::kFinished);
  }
  *counters = result.counters;
  return outcome;
}

// Holds the engine in every step until it is let go, and writes down what the step computes.
class RecordingGate {
 public:
  explicit RecordingGate(fakes::FakeModelControl& model) {
    model.SetOnStep([state = state_](const kernels::BatchView& batch) {
      StepRecord record{.num_sequences = batch.num_sequences(), .num_tokens = batch.num_tokens()};
      for (const std::int32_t length : batch.kv_lens) record.context_tokens += length;
      absl::MutexLock lock(&state->mutex);
      state->held = record;
      state->is_held = true;
      state->mutex.Await(absl::Condition(
          +[](State* s) { return s->num_released > 0 || s->open; }, state.get()));
      if (!state->open) --state->num_released;
      state->is_held = false;
      return absl::OkStatus();
    });
  }
  ~RecordingGate() {
    absl::MutexLock lock(&state_->mutex);
    state_->open = true;
  }

  // Waits until the engine is in a step; false after ten seconds.
  bool WaitUntilHeld(StepRecord* record) {
    absl::MutexLock lock(&state_->mutex);
    const bool held = state_->mutex.AwaitWithTimeout(
        absl::Condition(
            +[](State* s) { return s->is_held && s->num_released == 0; }, state_.get()),
        absl::Seconds(10));
    *record = state_->held;
    return held;
  }
  void Release() {
    absl::MutexLock lock(&state_->mutex);
    ++state_->num_released;
  }

 private:
  struct State {
    absl::Mutex mutex;
    StepRecord held ABSL_GUARDED_BY(mutex);
    bool is_held ABSL_GUARDED_BY(mutex) = false;
    bool open ABSL_GUARDED_BY(mutex) = false;
    int num_released ABSL_GUARDED_BY(mutex) = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Makes at most `num_steps` steps.
Outcome RunEngine(const engine::HarnessOptions& options, const std::vector<Arrival>& arrivals,
                  std::size_t num_steps) {
  engine::Harness harness(options);
  RecordingGate gate(*harness.model);
  Outcome outcome;
  harness.Submit(engine::Greedy({299}, 1));
  for (std::size_t step = 0; step < num_steps; ++step) {
    StepRecord record;
    if (!gate.WaitUntilHeld(&record)) break;
    const auto stats = harness.engine->stats();
    record.active = stats->blocks.active;
    record.cached = stats->blocks.cached;
    record.useful = stats->blocks.useful_slots;
    outcome.steps.push_back(record);
    for (const Arrival& arrival : arrivals) {
      if (static_cast<std::size_t>(arrival.step) != step) continue;
      engine::GenerationRequest request =
          arrival.num_branches == 1
              ? engine::Greedy(arrival.prompt, arrival.output_len)
              : engine::Sampled(arrival.prompt, arrival.output_len, /*seed=*/5);
      request.sampling.n = arrival.num_branches;
      if (arrival.num_branches == 1) request.session_id = arrival.session;
      harness.Submit(std::move(request));
    }
    harness.clock.Advance(absl::Seconds(1));
    gate.Release();
  }
  const auto stats = harness.ExpectIdle();
  outcome.scheduler = stats->scheduler;
  outcome.blocks = stats->blocks;
  return outcome;
}

void ExpectEqual(const engine::HarnessOptions& options, const std::vector<Arrival>& arrivals,
                 Counters* counters) {
  const Outcome simulated = RunSimulator(options, arrivals, counters);
  const Outcome real = RunEngine(options, arrivals, simulated.steps.size());
  ASSERT_EQ(real.steps.size(), simulated.steps.size());
  for (std::size_t i = 0; i < real.steps.size(); ++i) {
    ASSERT_EQ(real.steps[i], simulated.steps[i]) << "step " << i;
  }
  EXPECT_EQ(real.scheduler.num_steps, std::ssize(simulated.steps));
  EXPECT_EQ(real.scheduler.num_preemptions, counters->preemptions);
  EXPECT_EQ(real.scheduler.recomputed_tokens, counters->recomputed_tokens);
  EXPECT_EQ(real.scheduler.prefix_hit_tokens, counters->prefix_hit_tokens);
  EXPECT_EQ(real.scheduler.prefix_query_tokens, counters->prefix_query_tokens);
  EXPECT_EQ(real.scheduler.prefix_hit_tokens_after_preemption,
            counters->hit_tokens_after_preemption);
  EXPECT_EQ(real.scheduler.scheduled_prefill_tokens, counters->prefill_tokens);
  EXPECT_EQ(real.scheduler.scheduled_decode_tokens, counters->decode_tokens);
  EXPECT_EQ(real.blocks.allocations, simulated.blocks.allocations);
  EXPECT_EQ(real.blocks.evictions, simulated.blocks.evictions);
  EXPECT_EQ(real.blocks.copies_on_write, simulated.blocks.copies_on_write);
  EXPECT_EQ(real.blocks.peak_active, simulated.blocks.peak_active);
  EXPECT_EQ(real.blocks.cached, simulated.blocks.cached);
}

// Requests that arrive over the first steps; every fourth goes on from the text of an earlier one.
std::vector<Arrival> RandomArrivals(std::uint64_t seed, int count,
                                    const engine::HarnessOptions& options) {
  std::vector<Arrival> arrivals;
  std::int32_t step = 0;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
    const auto draw = [&](std::uint64_t use, std::int32_t range) {
      return static_cast<std::int32_t>(PhiloxUniform(seed, i, use) * range);
    };
    if (i > 0) step += draw(0, 3);
    Arrival arrival{
        .step = step,
        .prompt = engine::Prompt(static_cast<std::size_t>(1 + draw(1, 150)), 1000 * seed + i),
        .output_len = 20 + draw(2, 60)};
    if (i == 0) arrival.output_len = 100;  // The engine never idles before all have come.
    if (i % 4 == 3) {
      Arrival& before = arrivals[static_cast<std::size_t>(draw(3, static_cast<int>(i)))];
      if (before.session.empty()) before.session = std::to_string(i);
      arrival.session = before.session;
      std::vector<TokenId> text = before.prompt;
      const std::vector<TokenId> answer = fakes::FakeModelRunner::Greedy(
          before.prompt, before.output_len, options.model.vocab_size);
      text.insert(text.end(), answer.begin(), answer.end());
      text.insert(text.end(), arrival.prompt.begin(), arrival.prompt.end());
      if (text.size() < 300) arrival.prompt = std::move(text);
    }
    if (i % 7 == 5) arrival.num_branches = 3;
    arrivals.push_back(std::move(arrival));
  }
  return arrivals;
}

TEST(EngineEqualityTest, ARoomyPool) {
  const engine::HarnessOptions options = EngineWith(256);
  Counters counters;
  ExpectEqual(options, RandomArrivals(1, 24, options), &counters);
  EXPECT_EQ(counters.preemptions, 0);
  EXPECT_GT(counters.prefix_hit_tokens, 0);
  EXPECT_GT(counters.copies_on_write, 0);
}

TEST(EngineEqualityTest, ATightPoolWithPreemptions) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    const engine::HarnessOptions options = EngineWith(40);
    Counters counters;
    ExpectEqual(options, RandomArrivals(seed, 24, options), &counters);
    EXPECT_GT(counters.preemptions, 0);
    EXPECT_GT(counters.recomputed_tokens, 0);
  }
}

}  // namespace
}  // namespace quire::simulator
