// How requests end early: aborts, deadlines, drain, destruction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "engine/engine.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {
namespace {

using fakes::Answer;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(EngineCancel, C86_BlocksAreBackBeforeTheNextStep) {
  Harness harness;
  StepGate gate(*harness.model);
  const auto stream = harness.Submit(Greedy(Prompt(20), 900));
  gate.WaitUntilHeld();
  gate.Step();
  gate.WaitUntilHeld();
  harness.engine->Abort(stream, absl::CancelledError("client went away"));
  gate.Step();  // The step in which the abort came; no further one may follow.
  const Answer answer = harness.Wait(stream);
  EXPECT_EQ(*answer.terminal, absl::CancelledError("client went away"));
  EXPECT_EQ(harness.model->num_steps(), 2);
  EXPECT_EQ(harness.ExpectIdle()->cancelled, 1);
}

TEST(EngineCancel, C87_ARecordIsGoneOnceItsRequestIs) {
  Harness harness;
  for (std::uint64_t i = 0; i < 100; ++i) harness.Run(Greedy(Prompt(8, i), 3));
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->finished_length, 100);
  EXPECT_THAT(harness.engine->GetBlockMap(absl::Minutes(1))->sequences, IsEmpty());
}

TEST(EngineCancel, AnAbortByIdEndsARequest) {
  Harness harness;
  StepGate gate(*harness.model);
  GenerationRequest request = Greedy(Prompt(20), 900);
  request.request_id = "mine";
  const auto stream = harness.Submit(request);
  gate.WaitUntilHeld();
  harness.engine->Abort("mine", absl::AbortedError("by the operator"));
  harness.engine->Abort("mine", absl::AbortedError("again"));
  harness.engine->Abort("nobody's", absl::AbortedError("unknown"));
  gate.Open();
  EXPECT_EQ(*harness.Wait(stream).terminal, absl::AbortedError("by the operator"));
  EXPECT_EQ(harness.ExpectIdle()->cancelled, 1);
}

TEST(EngineCancel, AnAbortNeverCountsAsSuccess) {
  Harness harness;
  StepGate gate(*harness.model);
  const auto stream = harness.Submit(Greedy(Prompt(20), 900));
  gate.WaitUntilHeld();
  harness.engine->Abort(stream, absl::OkStatus());
  gate.Open();
  EXPECT_EQ(harness.Wait(stream).terminal->code(), absl::StatusCode::kCancelled);
}

TEST(EngineCancel, AWaitingRequestCanBeAborted) {
  HarnessOptions options;
  options.engine.scheduler.max_num_seqs = 1;
  Harness harness(options);
  StepGate gate(*harness.model);
  const auto running = harness.Submit(Greedy(Prompt(10), 5));
  gate.WaitUntilHeld();
  const auto waiting = harness.Submit(Greedy(Prompt(10, 2), 5));
  harness.engine->Abort(waiting, absl::CancelledError(""));
  gate.Open();
  const Answer answer = harness.Wait(waiting);
  EXPECT_EQ(answer.terminal->code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(answer.accepted.has_value()) << "it never ran";
  EXPECT_TRUE(harness.Wait(running).terminal->ok());
  harness.ExpectIdle();
}

TEST(EngineCancel, OneAbortEndsAllBranches) {
  Harness harness;
  GenerationRequest request = Sampled(Prompt(20), 900, 4);
  request.sampling.n = 4;
  const auto stream = harness.Submit(request);
  harness.sink.WaitForTokens(stream, 3);
  harness.engine->Abort(stream, absl::CancelledError(""));
  EXPECT_EQ(harness.Wait(stream).terminal->code(), absl::StatusCode::kCancelled);
  harness.ExpectIdle();
}

TEST(EngineCancel, BranchesThatHaveNotForkedYetAreAbortedToo) {
  HarnessOptions options;
  options.engine.scheduler.max_num_batched_tokens = 32;
  Harness harness(options);
  StepGate gate(*harness.model);
  GenerationRequest request = Sampled(Prompt(100), 5, 4);
  request.sampling.n = 4;
  const auto stream = harness.Submit(request);
  gate.WaitUntilHeld();  // The first chunk of the prompt.
  harness.engine->Abort(stream, absl::CancelledError(""));
  gate.Open();
  EXPECT_EQ(harness.Wait(stream).terminal->code(), absl::StatusCode::kCancelled);
  harness.ExpectIdle();
  EXPECT_EQ(harness.model->num_steps(), 1);
}

TEST(EngineCancel, C33_AnIdMayBeReusedWhileItsAbortIsInFlight) {
  Harness harness;
  const std::vector<TokenId> expected = harness.Expected(Prompt(12), 6);
  for (int round = 0; round < 200; ++round) {
    GenerationRequest request = Greedy(Prompt(12), 6);
    request.request_id = "r1";
    const auto first = harness.Submit(request);
    if (round % 2 == 0) {
      harness.engine->Abort("r1", absl::CancelledError(""));
    } else {
      harness.engine->Abort(first, absl::CancelledError(""));
    }
    // Either the first is over, or its abort freed the id.
    const auto second = harness.Submit(request);
    const Answer answer = harness.Wait(second);
    ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal << " in round " << round;
    ASSERT_EQ(answer.branches.at(0).token_ids, expected);
    harness.Wait(first);
  }
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->cancelled + stats->finished_length, 400);
  EXPECT_GE(stats->finished_length, 200);
}

TEST(EngineCancel, C36_ACancelAfterTheEndIsNoAbort) {
  Harness harness;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const auto stream = harness.Submit(Greedy(Prompt(4, i), 1));
    harness.Wait(stream);
    harness.engine->Abort(stream, absl::CancelledError(""));
    harness.engine->Abort(stream->request_id(), absl::CancelledError(""));
  }
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->finished_length, 500);
  EXPECT_EQ(stats->cancelled, 0);
}

TEST(EngineCancel, C63_ARequestCanBeAbortedWhileItsTextWaits) {
  // The tokenizer holds the text thread inside Encode until the test lets it go.
  struct SlowTokenizer final : text::Tokenizer {
    fakes::FakeTokenizer fake;
    mutable absl::Notification entered, release;
    absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                                const text::EncodeOptions& options) const override {
      if (text == "slow") {
        entered.Notify();
        release.WaitForNotification();
      }
      return fake.Encode(text, options);
    }
    absl::StatusOr<std::vector<TokenId>> EncodeSegments(
        std::span<const text::PromptSegment> segments) const override {
      return fake.EncodeSegments(segments);
    }
    std::string_view TokenBytes(TokenId id) const override { return fake.TokenBytes(id); }
    bool IsSpecial(TokenId id) const override { return fake.IsSpecial(id); }
    std::int32_t vocab_size() const override { return fake.vocab_size(); }
    bool adds_bos() const override { return false; }
    std::optional<TokenId> bos_id() const override { return std::nullopt; }
    std::optional<TokenId> eos_id() const override { return fake.eos_id(); }
  };
  auto tokenizer = std::make_shared<SlowTokenizer>();
  const HarnessOptions options;
  fakes::CollectingSink sink;
  auto model = std::make_shared<fakes::FakeModelControl>();
  auto engine = *Engine::Create(options.engine,
                                std::make_unique<fakes::FakeModelRunner>(options.model, model),
                                tokenizer, nullptr, options.traits, &sink);
  GenerationRequest request = Greedy({}, 4);
  request.prompt = TextPrompt{.text = "slow"};
  const auto encoding = *engine->Submit(request);
  tokenizer->entered.WaitForNotification();
  request.prompt = TextPrompt{.text = "fast"};
  const auto behind = *engine->Submit(request);
  engine->Abort(encoding, absl::CancelledError("encoding"));
  EXPECT_EQ(sink.Wait(encoding).terminal->message(), "encoding") << "does not wait for Encode";
  engine->Abort(behind, absl::CancelledError("behind"));
  EXPECT_EQ(sink.Wait(behind).terminal->message(), "behind");
  EXPECT_TRUE(sink.Wait(*engine->Submit(Greedy({1, 2}, 3))).terminal->ok())
      << "ids need no text thread";
  tokenizer->release.Notify();
  request.prompt = TextPrompt{.text = "fast"};
  EXPECT_TRUE(sink.Wait(*engine->Submit(request)).terminal->ok());
  EXPECT_EQ(engine->stats()->cancelled, 2);
  EXPECT_EQ(model->num_computed_tokens(), (2 + 2) + (4 + 3)) << "nothing of the aborted ones";
}

// --- Deadlines -------------------------------------------------------------------------------

TEST(EngineDeadline, C35_AWaitingRequestPastItsDeadlineIsNotPrefilled) {
  HarnessOptions options;
  options.engine.scheduler.max_num_seqs = 1;
  Harness harness(options);
  StepGate gate(*harness.model);
  const auto running = harness.Submit(Greedy(Prompt(10), 5));
  gate.WaitUntilHeld();
  GenerationRequest request = Greedy(Prompt(50, 2), 5);
  request.deadline = harness.clock.Now() + absl::Milliseconds(200);
  const auto late = harness.Submit(request);
  harness.clock.Advance(absl::Milliseconds(200));
  gate.Open();
  const Answer answer = harness.Wait(late);
  EXPECT_EQ(answer.terminal->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(answer.branches, IsEmpty()) << "never shown as a finished answer";
  EXPECT_FALSE(answer.accepted.has_value());
  EXPECT_TRUE(harness.Wait(running).terminal->ok());
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->deadline_exceeded, 1);
  EXPECT_EQ(stats->scheduler.scheduled_prefill_tokens, 10) << "no prefill token was spent on it";
}

TEST(EngineDeadline, ARunningRequestEndsAtItsDeadline) {
  Harness harness;
  StepGate gate(*harness.model);
  GenerationRequest request = Sampled(Prompt(20), 900, 1);
  request.sampling.n = 3;
  request.deadline = harness.clock.Now() + absl::Seconds(5);
  const auto stream = harness.Submit(request);
  gate.WaitUntilHeld();
  gate.Step();
  gate.WaitUntilHeld();
  harness.clock.Advance(absl::Seconds(5));
  gate.Open();
  const Answer answer = harness.Wait(stream);
  EXPECT_EQ(answer.terminal->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(answer.branches.at(0).token_ids, SizeIs(2)) << "what was made in time was sent";
  EXPECT_FALSE(answer.branches.at(0).finished.has_value());
  EXPECT_EQ(harness.ExpectIdle()->deadline_exceeded, 1);
}

TEST(EngineDeadline, ADeadlineAlreadyPastIsNoError) {
  Harness harness;
  GenerationRequest request = Greedy(Prompt(20), 4);
  request.deadline = harness.clock.Now() - absl::Seconds(1);
  EXPECT_EQ(harness.Run(request).terminal->code(), absl::StatusCode::kDeadlineExceeded);
  request.prompt = TextPrompt{.text = "text"};
  EXPECT_EQ(harness.Run(request).terminal->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(harness.model->num_steps(), 0);
  EXPECT_EQ(harness.ExpectIdle()->deadline_exceeded, 2);
}

// --- Drain and destruction -------------------------------------------------------------------

// Until a drain has begun, work is still accepted: one request, whose id is in use from then on.
void WaitUntilRefused(Harness& harness) {
  GenerationRequest request = Greedy({1}, 1);
  request.request_id = "asked again and again";
  while (harness.engine->Submit(request).status().code() != absl::StatusCode::kUnavailable) {
  }
}

TEST(EngineDrain, LetsAcceptedWorkEndAndRefusesNewWork) {
  Harness harness;
  StepGate gate(*harness.model);
  const auto running = harness.Submit(Greedy(Prompt(10), 20));
  gate.WaitUntilHeld();
  std::thread drainer([&harness] { harness.engine->Drain(absl::Minutes(1)); });
  WaitUntilRefused(harness);
  gate.Open();
  drainer.join();
  EXPECT_EQ(harness.sink.Now(running).branches.at(0).token_ids, harness.Expected(Prompt(10), 20))
      << "the last message is out when Drain returns";
  EXPECT_TRUE(harness.ExpectIdle()->draining);
}

TEST(EngineDrain, IsOverAtOnceWhenIdle) {
  Harness harness;
  harness.engine->Drain(absl::InfiniteDuration());
  harness.engine->Drain(absl::InfiniteDuration());
  EXPECT_EQ(harness.engine->Submit(Greedy({1}, 1)).status().code(), absl::StatusCode::kUnavailable);
  harness.WaitFor([](const EngineStats& s) { return s.draining && s.refused == 1; });
}

TEST(EngineDrain, AbortsWhatIsLeftAfterItsTimeout) {
  Harness harness;
  harness.model->SetOnStep([&harness](const kernels::BatchView&) {
    harness.clock.Advance(absl::Milliseconds(1));
    return absl::OkStatus();
  });
  GenerationRequest endless = Greedy(Prompt(10), 1000);
  StepGate gate(*harness.model);
  const auto running = harness.Submit(endless);
  gate.WaitUntilHeld();
  const auto queued = harness.Submit(endless);
  std::thread drainer([&harness] { harness.engine->Drain(absl::ZeroDuration()); });
  // The step goes on only when the abort is in the mail: a draining engine refuses, and the abort
  // follows without a wait.
  WaitUntilRefused(harness);
  gate.Open();
  drainer.join();
  for (const auto& stream : {running, queued}) {
    const Answer answer = harness.sink.Now(stream);
    ASSERT_TRUE(answer.terminal.has_value());
    EXPECT_TRUE(answer.terminal->code() == absl::StatusCode::kAborted || answer.terminal->ok());
  }
  harness.ExpectIdle();
}

TEST(EngineDestruction, C31_EveryRequestInFlightGetsAStatus) {
  for (int round = 0; round < 20; ++round) {
    HarnessOptions options;
    options.engine.scheduler.max_num_seqs = 8;
    Harness harness(options);
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (std::uint64_t i = 0; i < 20; ++i) {
      GenerationRequest request = Greedy(Prompt(30 + 20 * i, i), 500);
      if (i % 3 == 0) request.prompt = TextPrompt{.text = std::string(30 + 20 * i, 'x')};
      streams.push_back(harness.Submit(request));
    }
    if (round % 2 == 0) harness.sink.WaitForTokens(streams[1], 1 + round);
    harness.engine.reset();
    for (const auto& stream : streams) {
      const Answer answer = harness.sink.Now(stream);
      ASSERT_TRUE(answer.terminal.has_value()) << stream->request_id();
      EXPECT_TRUE(answer.terminal->ok() || answer.terminal->code() == absl::StatusCode::kAborted)
          << *answer.terminal;
    }
  }
}

TEST(EngineDestruction, AnIdleEngineEndsAtOnce) {
  for (int i = 0; i < 50; ++i) Harness harness;
}

TEST(EngineDestruction, AStreamOutlivesItsEngine) {
  auto harness = std::make_unique<Harness>();
  const auto stream = harness->Submit(Greedy(Prompt(10), 1000));
  harness.reset();
  EXPECT_FALSE(stream->request_id().empty());
  EXPECT_TRUE(stream->Take().empty()) << "the sink has read it all";
}

}  // namespace
}  // namespace quire::engine
