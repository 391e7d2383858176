#include "tests/engine/engine_harness.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/philox.h"
#include "engine/text/chat_template.h"

namespace quire::engine {

HarnessOptions::HarnessOptions() {
  engine.scheduler.max_num_seqs = 16;
  engine.scheduler.max_num_batched_tokens = 256;
  engine.scheduler.max_prefill_tokens = 128;
  engine.scheduler.max_model_len = 1024;
  traits.eos_token_ids = {fakes::FakeTokenizer::kEos};
}

HarnessOptions WithWords(std::vector<std::string> words) {
  HarnessOptions options;
  options.words = std::move(words);
  return options;
}

std::vector<TokenId> Prompt(std::size_t length, std::uint64_t salt) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < length; ++i) {
    ids.push_back(static_cast<TokenId>(PhiloxUniform(salt, 0, i) * 255));
  }
  return ids;
}

GenerationRequest Greedy(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  GenerationRequest request;
  request.prompt = TokenPrompt{std::move(prompt)};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

GenerationRequest Sampled(std::vector<TokenId> prompt, std::int32_t max_tokens,
                          std::uint64_t seed) {
  GenerationRequest request = Greedy(std::move(prompt), max_tokens);
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  return request;
}

Harness::Harness(const HarnessOptions& harness_options) : options(harness_options) {
  if (options.with_tokenizer) {
    tokenizer =
        std::make_shared<const fakes::FakeTokenizer>(options.words, options.model.vocab_size);
  }
  std::shared_ptr<const text::ChatTemplate> chat_template;
  if (options.with_chat_template) {
    auto builtin = text::BuiltinChatTemplate("chatml");
    EXPECT_TRUE(builtin.ok()) << builtin.status();
    chat_template = *std::move(builtin);
  }
  auto created =
      Engine::Create(options.engine, std::make_unique<fakes::FakeModelRunner>(options.model, model),
                     tokenizer, chat_template, options.traits, &sink, clock);
  EXPECT_TRUE(created.ok()) << created.status();
  engine = *std::move(created);
}

Harness::~Harness() {
  engine.reset();
  for (const std::string& fault : model->faults()) ADD_FAILURE() << fault;
  for (const std::string& violation : sink.Violations()) ADD_FAILURE() << violation;
}

std::shared_ptr<TokenStream> Harness::Submit(GenerationRequest request) {
  auto stream = engine->Submit(std::move(request));
  EXPECT_TRUE(stream.ok()) << stream.status();
  return stream.ok() ? *stream : nullptr;
}

fakes::Answer Harness::Run(GenerationRequest request) { return Wait(Submit(std::move(request))); }

fakes::Answer Harness::Wait(const std::shared_ptr<TokenStream>& stream) {
  return stream == nullptr ? fakes::Answer() : sink.Wait(stream);
}

std::vector<TokenId> Harness::Expected(const std::vector<TokenId>& prompt,
                                       std::int32_t count) const {
  return fakes::FakeModelRunner::Greedy(prompt, count, options.model.vocab_size);
}

std::shared_ptr<const EngineStats> Harness::WaitFor(
    const std::function<bool(const EngineStats&)>& condition) const {
  const absl::Time give_up = absl::Now() + absl::Minutes(1);
  std::shared_ptr<const EngineStats> stats = engine->stats();
  while (!condition(*stats)) {
    if (absl::Now() > give_up) {
      ADD_FAILURE() << "no snapshot fulfils the condition";
      break;
    }
    stats = engine->WaitForStats(stats->sequence_number, absl::Seconds(1));
  }
  return stats;
}

std::shared_ptr<const EngineStats> Harness::ExpectIdle() const {
  const auto idle = WaitFor([](const EngineStats& s) {
    return s.requests_queued == 0 && s.requests_running == 0 && s.blocks.active == 0;
  });
  ExpectConsistent(*idle);
  EXPECT_EQ(idle->blocks.active, 0);
  EXPECT_EQ(idle->blocks.useful_slots, 0);
  EXPECT_EQ(idle->scheduler.num_running, 0);
  EXPECT_EQ(idle->scheduler.num_waiting, 0);
  return idle;
}

void ExpectConsistent(const EngineStats& s) {
  EXPECT_EQ(s.requests_received, s.requests_queued + s.requests_running + s.finished_stop +
                                     s.finished_length + s.cancelled + s.deadline_exceeded +
                                     s.refused + s.failed);
  EXPECT_EQ(s.blocks.active + s.blocks.cached + s.blocks.free, s.blocks.capacity);
  for (const std::int64_t count :
       {s.requests_queued, s.requests_running, s.blocks.active, s.blocks.cached, s.blocks.free,
        s.blocks.useful_slots, std::int64_t{s.scheduler.num_running},
        std::int64_t{s.scheduler.num_waiting}}) {
    EXPECT_GE(count, 0);
  }
  EXPECT_LE(s.blocks.useful_slots, s.blocks.active * s.blocks.block_size);
  EXPECT_LE(s.cached_prompt_tokens, s.prompt_tokens);
}

StepGate::StepGate(fakes::FakeModelControl& model) {
  model.SetOnStep([state = state_](const kernels::BatchView&) {
    absl::MutexLock lock(&state->mutex);
    state->held = true;
    const auto may_go = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mutex) {
      return state->open || state->tickets > 0;
    };
    state->mutex.Await(absl::Condition(&may_go));
    state->held = false;
    if (!state->open) --state->tickets;
    return absl::OkStatus();
  });
}

void StepGate::WaitUntilHeld() {
  absl::MutexLock lock(&state_->mutex);
  const auto held = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    return state_->held && state_->tickets == 0;
  };
  state_->mutex.Await(absl::Condition(&held));
}

void StepGate::Step() {
  absl::MutexLock lock(&state_->mutex);
  ++state_->tickets;
}

void StepGate::Open() {
  absl::MutexLock lock(&state_->mutex);
  state_->open = true;
}

}  // namespace quire::engine
