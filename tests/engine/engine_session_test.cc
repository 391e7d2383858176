// Sessions: what the next turn computes, what a session is, and when it is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/engine.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {
namespace {

using fakes::Answer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Ids = std::vector<TokenId>;

constexpr absl::Duration kPatience = absl::Seconds(30);

GenerationRequest InSession(const std::string& session_id, Ids prompt, std::int32_t max_tokens) {
  GenerationRequest request = Greedy(std::move(prompt), max_tokens);
  request.session_id = session_id;
  return request;
}

GenerationRequest Continue(const std::string& session_id, Ids part, std::int32_t max_tokens) {
  GenerationRequest request = InSession(session_id, std::move(part), max_tokens);
  request.continue_session = true;
  return request;
}

Ids operator+(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// Prompt and answer of a turn.
Ids Turn(Harness& harness, GenerationRequest request) {
  const Ids prompt = std::get<TokenPrompt>(request.prompt).ids;
  const Answer answer = harness.Run(std::move(request));
  EXPECT_TRUE(answer.terminal->ok()) << *answer.terminal;
  return prompt + answer.branches.at(0).token_ids;
}

TEST(EngineSession, TheNextTurnComputesOnlyWhatIsNew) {
  Harness harness;
  Ids text = Turn(harness, InSession("s", Prompt(40), 20));
  for (std::uint64_t turn = 2; turn < 6; ++turn) {
    const auto computed = [&] {
      return harness.engine->stats()->scheduler.scheduled_prefill_tokens;
    };
    const std::int64_t before = computed();
    const Ids whole = text + Prompt(10, turn);
    const Answer answer = harness.Run(InSession("s", whole, 20));
    // The last token of an answer is never computed; of the rest, full blocks are cached.
    const auto cached = static_cast<std::int32_t>((text.size() - 1) / 16 * 16);
    EXPECT_EQ(answer.accepted->cached_tokens, cached) << "turn " << turn;
    EXPECT_EQ(computed() - before, static_cast<std::int64_t>(whole.size()) - cached);
    EXPECT_LE(computed() - before, 10 + 16) << "give or take one block";
    EXPECT_EQ(answer.branches.at(0).token_ids, harness.Expected(whole, 20));
    text = whole + answer.branches.at(0).token_ids;
  }
  EXPECT_EQ(harness.ExpectIdle()->blocks.sessions, 1);
}

TEST(EngineSession, TheNewPartAloneContinuesASession) {
  Harness harness;
  Ids text = Turn(harness, InSession("s", Prompt(40), 20));
  for (std::uint64_t turn = 2; turn < 6; ++turn) {
    const Ids whole = text + Prompt(10, turn);
    const Answer answer = harness.Run(Continue("s", Prompt(10, turn), 20));
    ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal;
    EXPECT_EQ(answer.accepted->prompt_tokens, static_cast<std::int32_t>(whole.size()));
    EXPECT_EQ(answer.accepted->cached_tokens,
              static_cast<std::int32_t>((text.size() - 1) / 16 * 16));
    EXPECT_EQ(answer.branches.at(0).token_ids, harness.Expected(whole, 20));
    EXPECT_EQ(answer.branches.at(0).finished->prompt_tokens, answer.accepted->prompt_tokens);
    text = whole + answer.branches.at(0).token_ids;
  }
}

TEST(EngineSession, TextContinuesAsItIsEncoded) {
  Harness harness;
  GenerationRequest first = InSession("s", {}, 3);
  first.prompt = TextPrompt{.text = "Once upon"};
  const Answer one = harness.Run(first);
  ASSERT_TRUE(one.terminal->ok()) << *one.terminal;
  GenerationRequest second = Continue("s", {}, 3);
  second.prompt = TextPrompt{.text = " a time"};
  const Answer two = harness.Run(second);
  ASSERT_TRUE(two.terminal->ok()) << *two.terminal;
  const Ids whole = one.accepted->prompt_token_ids + one.branches.at(0).token_ids +
                    *harness.tokenizer->Encode(" a time", {});
  EXPECT_EQ(two.accepted->prompt_token_ids, whole);
  EXPECT_EQ(two.branches.at(0).token_ids, harness.Expected(whole, 3));
}

TEST(EngineSession, PenaltiesAndLogprobsSeeTheWholePrompt) {
  Harness harness;
  const Ids text = Turn(harness, InSession("s", Prompt(20), 5));
  GenerationRequest request = Continue("s", Prompt(6, 2), 5);
  request.sampling.prompt_logprobs = 0;
  request.sampling.repetition_penalty = 1.3;
  const Answer part = harness.Run(request);
  ASSERT_TRUE(part.terminal->ok()) << *part.terminal;
  GenerationRequest same = request;
  same.session_id.clear();
  same.continue_session = false;
  same.prompt = TokenPrompt{text + Prompt(6, 2)};
  const Answer whole = harness.Run(same);
  EXPECT_EQ(part.branches.at(0).token_ids, whole.branches.at(0).token_ids);
  EXPECT_THAT(part.prompt_logprobs, SizeIs(31));
}

absl::Status StatusOf(Harness& harness, GenerationRequest request) {
  const auto stream = harness.engine->Submit(std::move(request));
  return stream.ok() ? *harness.Wait(*stream).terminal : stream.status();
}

TEST(EngineSession, UnknownSessionsAreNotFound) {
  Harness harness;
  Turn(harness, InSession("s", Prompt(40), 5));
  const absl::Status unknown = StatusOf(harness, Continue("t", Prompt(3), 5));
  EXPECT_TRUE(absl::IsNotFound(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("session_id"));
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->refused, 1);
  EXPECT_EQ(stats->requests_received, 2);
}

TEST(EngineSession, C17_C18_SessionsOfDifferentSaltsAreDifferent) {
  Harness harness;
  GenerationRequest first = InSession("s", Prompt(40), 5);
  first.cache_salt = "one";
  Turn(harness, first);
  for (const char* salt : {"", "two", "One"}) {
    GenerationRequest other = Continue("s", Prompt(3), 5);
    other.cache_salt = salt;
    EXPECT_TRUE(absl::IsNotFound(StatusOf(harness, other))) << salt;
    EXPECT_FALSE(*harness.engine->EndSession("s", salt, kPatience)) << salt;
    GenerationRequest whole = InSession("s", Prompt(40), 5);
    whole.cache_salt = salt;
    EXPECT_EQ(harness.Run(whole).accepted->cached_tokens, 0) << salt;
  }
  EXPECT_EQ(harness.engine->stats()->blocks.sessions, 4);
  GenerationRequest own = Continue("s", Prompt(3), 5);
  own.cache_salt = "one";
  EXPECT_TRUE(StatusOf(harness, own).ok());
}

TEST(EngineSession, EndSessionGivesTheLeaseUpAndTheWholeTextStillWorks) {
  Harness harness;
  const Ids text = Turn(harness, InSession("s", Prompt(40), 20));
  EXPECT_EQ(harness.ExpectIdle()->blocks.leased, 3);
  EXPECT_TRUE(*harness.engine->EndSession("s", "", kPatience));
  EXPECT_FALSE(*harness.engine->EndSession("s", "", kPatience));
  const auto stats = harness.WaitFor([](const EngineStats& s) { return s.blocks.sessions == 0; });
  EXPECT_EQ(stats->blocks.leased, 0);
  EXPECT_EQ(stats->blocks.cached, 3) << "ordinary cached blocks again";
  EXPECT_TRUE(absl::IsNotFound(StatusOf(harness, Continue("s", Prompt(3), 5))));
  EXPECT_EQ(harness.Run(InSession("s", text, 5)).accepted->cached_tokens, 48);
}

TEST(EngineSession, ALeaseExpiresByTheEnginesClockWhileItIsIdle) {
  HarnessOptions options;
  options.engine.session_ttl = absl::Minutes(3);
  Harness harness(options);
  Turn(harness, InSession("s", Prompt(40), 20));
  harness.clock.Advance(absl::Minutes(3) - absl::Seconds(1));
  harness.engine->Poke();
  EXPECT_EQ(harness.engine->GetBlockMap(kPatience)->sessions.size(), 1);
  harness.clock.Advance(absl::Seconds(1));
  harness.engine->Poke();
  const auto stats = harness.WaitFor([](const EngineStats& s) { return s.blocks.sessions == 0; });
  EXPECT_EQ(stats->blocks.leases_expired, 1);
  EXPECT_EQ(stats->blocks.leased, 0);
  EXPECT_EQ(stats->blocks.cached, 3);
  EXPECT_TRUE(absl::IsNotFound(StatusOf(harness, Continue("s", Prompt(3), 5))));
}

TEST(EngineSession, ALeaseIsGoneAtItsTimeEvenIfNobodyHasLookedSince) {
  HarnessOptions options;
  options.engine.session_ttl = absl::Minutes(3);
  Harness harness(options);
  Turn(harness, InSession("s", Prompt(40), 20));
  harness.clock.Advance(absl::Minutes(3));
  EXPECT_TRUE(absl::IsNotFound(StatusOf(harness, Continue("s", Prompt(3), 5))));
}

TEST(EngineSession, AnEvictedLeaseIsNotFoundAndTheWholeTextWorks) {
  HarnessOptions options;
  options.model.num_blocks = 8;
  Harness harness(options);
  const Ids text = Turn(harness, InSession("s", Prompt(40), 20));
  Turn(harness, Greedy(Prompt(110, 7), 2));  // Seven of eight blocks: three were leased.
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->blocks.sessions, 0);
  EXPECT_EQ(stats->blocks.leases_displaced, 1);
  EXPECT_TRUE(absl::IsNotFound(StatusOf(harness, Continue("s", Prompt(3), 5))));
  EXPECT_EQ(harness.Run(InSession("s", text, 5)).branches.at(0).token_ids,
            harness.Expected(text, 5));
}

TEST(EngineSession, WhatDoesNotBelongTogetherIsRefusedByName) {
  Harness harness;
  const auto refusal = [&](auto spoil) {
    GenerationRequest request = Continue("s", Prompt(3), 5);
    spoil(request);
    const absl::Status status = harness.engine->Submit(std::move(request)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](GenerationRequest& r) {
                r.sampling.n = 2;
                r.sampling.temperature = 1;
              }),
              HasSubstr("n must be 1 with a session_id, got 2"));
  EXPECT_THAT(refusal([](GenerationRequest& r) { r.session_id.clear(); }),
              HasSubstr("session_id is missing"));
  EXPECT_THAT(refusal([](GenerationRequest& r) { r.session_id = std::string(257, 's'); }),
              HasSubstr("session_id has 257 bytes, at most 256"));
  EXPECT_THAT(refusal([](GenerationRequest& r) { r.client_id = std::string(257, 'c'); }),
              HasSubstr("client_id has 257 bytes, at most 256"));
  EXPECT_THAT(refusal([](GenerationRequest& r) {
                r.prompt = ChatPrompt{{{.role = "user", .content = "hi"}}};
              }),
              AllOf(HasSubstr("continue_session"), HasSubstr("chat template")));
  EXPECT_THAT(refusal([](GenerationRequest& r) { r.sampling.truncate_prompt_tokens = 2; }),
              HasSubstr("truncate_prompt_tokens"));
  harness.WaitFor([](const EngineStats& s) { return s.refused == 6; });
}

TEST(EngineSession, AContinuationThatIsTooLongSaysBothNumbers) {
  HarnessOptions options;
  options.engine.scheduler.max_model_len = 64;
  Harness harness(options);
  Turn(harness, InSession("s", Prompt(40), 20));
  const absl::Status status = StatusOf(harness, Continue("s", Prompt(10, 2), 5));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("60 tokens of the session"), HasSubstr("10 new ones"),
                    HasSubstr("max_model_len is 64")));
  const Answer answer = harness.Run(Continue("s", Prompt(2, 2), 5));
  EXPECT_TRUE(answer.terminal->ok()) << "the session outlives a refusal";
  EXPECT_EQ(answer.branches.at(0).finished->completion_tokens, 2);
}

TEST(EngineSession, ACancelledTurnLeavesTheLastOne) {
  Harness harness;
  const Ids text = Turn(harness, InSession("s", Prompt(40), 20));
  StepGate gate(*harness.model);
  const auto stream = harness.Submit(Continue("s", Prompt(10, 2), 400));
  gate.WaitUntilHeld();
  harness.engine->Abort(stream, absl::CancelledError("changed my mind"));
  gate.Open();
  EXPECT_TRUE(absl::IsCancelled(*harness.Wait(stream).terminal));
  const Answer answer = harness.Run(Continue("s", Prompt(5, 3), 5));
  ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal;
  EXPECT_EQ(answer.branches.at(0).token_ids, harness.Expected(text + Prompt(5, 3), 5));
}

TEST(EngineSession, AFailedTurnLeavesTheLastOne) {
  Harness harness;
  const Ids text = Turn(harness, InSession("s", Prompt(40), 20));
  GenerationRequest late = Continue("s", Prompt(10, 2), 400);
  late.deadline = harness.clock.Now() + absl::Seconds(1);
  StepGate gate(*harness.model);
  const auto stream = harness.Submit(late);
  gate.WaitUntilHeld();
  harness.clock.Advance(absl::Seconds(2));
  gate.Open();
  EXPECT_TRUE(absl::IsDeadlineExceeded(*harness.Wait(stream).terminal));
  EXPECT_EQ(harness.Run(Continue("s", Prompt(5, 3), 5)).accepted->prompt_tokens,
            static_cast<std::int32_t>(text.size()) + 5);
}

TEST(EngineSession, ATurnWithNanLogitsLeavesTheLastOne) {
  Harness harness;
  const Ids text = Turn(harness, InSession("s", Prompt(40), 20));
  harness.model->SetPoison(299);
  EXPECT_TRUE(absl::IsInternal(StatusOf(harness, Continue("s", {299}, 5))));
  const Answer answer = harness.Run(Continue("s", Prompt(5, 3), 5));
  ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal;
  EXPECT_EQ(answer.accepted->prompt_tokens, static_cast<std::int32_t>(text.size()) + 5);
}

TEST(EngineSession, TheBlockMapShowsLeasesAndTheStatsAgree) {
  Harness harness;
  const Ids one = Turn(harness, InSession("one", Prompt(40, 1), 20));
  harness.clock.Advance(absl::Minutes(1));
  const Ids two = Turn(harness, InSession("two", Prompt(20, 2), 20));
  const auto map = harness.engine->GetBlockMap(kPatience);
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_THAT(map->sessions, SizeIs(2));
  EXPECT_EQ(map->sessions[0].session_id, "one");
  EXPECT_EQ(map->sessions[0].num_tokens, static_cast<std::int32_t>(one.size()));
  EXPECT_EQ(map->sessions[0].expires_in, absl::Minutes(9));
  EXPECT_THAT(map->sessions[0].blocks, SizeIs(3));
  EXPECT_EQ(map->sessions[1].session_id, "two");
  EXPECT_EQ(map->sessions[1].num_tokens, static_cast<std::int32_t>(two.size()));
  EXPECT_EQ(map->sessions[1].expires_in, absl::Minutes(10));
  EXPECT_THAT(map->sessions[1].blocks, SizeIs(2));
  EXPECT_EQ(map->stats.leased, 5);
  EXPECT_EQ(map->stats.sessions, 2);
  for (const auto& session : map->sessions) {
    for (const BlockId block : session.blocks) {
      EXPECT_EQ(map->states[static_cast<std::size_t>(block.value())], BlockMap::State::kCached);
    }
  }
}

TEST(EngineSession, HitsOfASessionAreCountedAsItsOwn) {
  Harness harness;
  Turn(harness, InSession("s", Prompt(40), 20));
  harness.Run(Continue("s", Prompt(10, 2), 5));
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->scheduler.prefix_hit_tokens_session, 48);
  EXPECT_EQ(stats->cached_prompt_tokens, 48);
}

TEST(EngineSession, WithoutAShareThereAreNoSessions) {
  HarnessOptions options;
  for (const double share : {0.0, 0.01}) {  // Of 64 blocks.
    options.engine.session_cache_share = share;
    Harness harness(options);
    Turn(harness, InSession("s", Prompt(40), 20));
    EXPECT_EQ(harness.ExpectIdle()->blocks.leased, 0);
    const absl::Status status = StatusOf(harness, Continue("s", Prompt(3), 5));
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("this server keeps no sessions (--session-cache-share)"));
  }
}

TEST(EngineSession, WithoutPrefixCachingASessionHoldsTextAndNoBlocks) {
  HarnessOptions options;
  options.engine.enable_prefix_caching = false;
  Harness harness(options);
  const Ids text = Turn(harness, InSession("s", Prompt(40), 20));
  EXPECT_EQ(harness.ExpectIdle()->blocks.leased, 0);
  const Answer answer = harness.Run(Continue("s", Prompt(3, 2), 5));
  ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal;
  EXPECT_EQ(answer.accepted->prompt_tokens, 63);
  EXPECT_EQ(answer.accepted->cached_tokens, 0);
  EXPECT_EQ(answer.branches.at(0).token_ids, harness.Expected(text + Prompt(3, 2), 5));
}

}  // namespace
}  // namespace quire::engine
