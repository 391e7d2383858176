// An engine over the fake model, with everything a test looks at.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "tests/fakes/collecting_sink.h"
#include "tests/fakes/fake_model_runner.h"
#include "tests/fakes/fake_tokenizer.h"

namespace quire::engine {

struct HarnessOptions {
  HarnessOptions();  // 64 blocks of 16, 16 sequences, 256 tokens a step, a context of 1024.

  fakes::FakeModelOptions model;
  EngineOptions engine;
  ModelTraits traits;              // One end-of-sequence id: FakeTokenizer::kEos.
  std::vector<std::string> words;  // Of the tokenizer.
  bool with_tokenizer = true;
  bool with_chat_template = true;
};
HarnessOptions WithWords(std::vector<std::string> words);

// A prompt of `length` tokens that share nothing with another `salt`'s.
std::vector<TokenId> Prompt(std::size_t length, std::uint64_t salt = 1);

// Greedy, `max_tokens` tokens, deaf to end-of-sequence.
GenerationRequest Greedy(std::vector<TokenId> prompt, std::int32_t max_tokens);
// Temperature 1 with a seed, deaf to end-of-sequence.
GenerationRequest Sampled(std::vector<TokenId> prompt, std::int32_t max_tokens, std::uint64_t seed);

class Harness {
 public:
  explicit Harness(const HarnessOptions& options = HarnessOptions());
  // Ends the engine and checks that no KV fault and no stream violation has been seen.
  ~Harness();

  // Fails the test when refused.
  std::shared_ptr<TokenStream> Submit(GenerationRequest request);
  // Submits and waits for the end.
  fakes::Answer Run(GenerationRequest request);
  fakes::Answer Wait(const std::shared_ptr<TokenStream>& stream);

  // The tokens that the model gives greedily to a prompt, computed without an engine.
  std::vector<TokenId> Expected(const std::vector<TokenId>& prompt, std::int32_t count) const;

  // Waits until a snapshot fulfils `condition`; returns it. Fails the test after a minute.
  std::shared_ptr<const EngineStats> WaitFor(
      const std::function<bool(const EngineStats&)>& condition) const;
  // Waits until nothing is queued or runs, and checks that every block is back and all requests are
  // accounted for.
  std::shared_ptr<const EngineStats> ExpectIdle() const;

  const HarnessOptions options;
  ManualClock clock;
  fakes::CollectingSink sink;
  std::shared_ptr<fakes::FakeModelControl> model = std::make_shared<fakes::FakeModelControl>();
  std::shared_ptr<const fakes::FakeTokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
};

// received == queued + running + outcomes, active + cached + free == capacity, nothing negative.
void ExpectConsistent(const EngineStats& stats);

// Holds the engine inside a step until the test lets it go on.
//
//   StepGate gate(*harness.model);
//   …submit…
//   gate.WaitUntilHeld();   // The engine thread stands in a step.
//   …                       // What comes now is read after that step.
//   gate.Open();
class StepGate {
 public:
  explicit StepGate(fakes::FakeModelControl& model);
  ~StepGate() { Open(); }
  void WaitUntilHeld();
  // Lets the held step go on; the next one is held again.
  void Step();
  // Holds nothing any more.
  void Open();

 private:
  struct State {
    absl::Mutex mutex;
    bool open ABSL_GUARDED_BY(mutex) = false;
    bool held ABSL_GUARDED_BY(mutex) = false;
    std::int64_t tickets ABSL_GUARDED_BY(mutex) = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace quire::engine
