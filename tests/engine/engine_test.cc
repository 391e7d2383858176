// What a request gets from the engine: tokens, text, usage, stops, branches, log-probabilities.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {
namespace {

using fakes::Answer;
using fakes::FakeTokenizer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Ids = std::vector<TokenId>;

// Token ids for `words` of the tokenizer, in order; the model emits them after `first`, each after
// the one before (catalogue: CHAIN).
void Chain(Harness& harness, TokenId first, const Ids& ids) {
  TokenId from = first;
  for (const TokenId to : ids) {
    harness.model->SetSuccessor(from, to);
    from = to;
  }
}

TEST(Engine, AnswersWithTheModelsTokens) {
  Harness harness;
  const Ids prompt = Prompt(37);
  const Answer answer = harness.Run(Greedy(prompt, 20));
  ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal;
  EXPECT_EQ(answer.branches.at(0).token_ids, harness.Expected(prompt, 20));
  EXPECT_EQ(answer.accepted->prompt_tokens, 37);
  EXPECT_EQ(answer.accepted->cached_tokens, 0);
  EXPECT_THAT(answer.accepted->prompt_token_ids, IsEmpty()) << "the client sent ids itself";
  const Finished& finished = *answer.branches.at(0).finished;
  EXPECT_EQ(finished.reason, FinishReason::kLength);
  EXPECT_EQ(finished.detail, "");
  EXPECT_EQ(finished.prompt_tokens, 37);
  EXPECT_EQ(finished.completion_tokens, 20);
  EXPECT_EQ(finished.timings.num_blocks, 4) << "56 computed tokens in blocks of 16";
  harness.ExpectIdle();
}

TEST(Engine, AnswersManyAtOnceAsAlone) {
  Harness harness;
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (std::uint64_t i = 0; i < 12; ++i) {
    streams.push_back(harness.Submit(Greedy(Prompt(5 + 7 * i, i), 30)));
  }
  for (std::uint64_t i = 0; i < 12; ++i) {
    const Answer answer = harness.Wait(streams[i]);
    EXPECT_EQ(answer.branches.at(0).token_ids, harness.Expected(Prompt(5 + 7 * i, i), 30));
  }
  harness.ExpectIdle();
}

TEST(Engine, ALongPromptIsComputedInChunks) {
  Harness harness;
  const Ids prompt = Prompt(700);
  const Answer answer = harness.Run(Greedy(prompt, 3));
  EXPECT_EQ(answer.branches.at(0).token_ids, harness.Expected(prompt, 3));
  EXPECT_GE(harness.model->num_steps(), 5) << "at most 256 tokens a step";
}

TEST(Engine, TextIsEncodedAndDecoded) {
  Harness harness(WithWords({" world"}));
  const TokenId world = harness.tokenizer->Word(" world");
  Chain(harness, '!', {world, FakeTokenizer::kEos});
  GenerationRequest request;
  request.prompt = TextPrompt{.text = "Hello!"};
  request.sampling.temperature = 0;
  const Answer answer = harness.Run(request);
  ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal;
  EXPECT_THAT(answer.accepted->prompt_token_ids, ElementsAre('H', 'e', 'l', 'l', 'o', '!'));
  EXPECT_EQ(answer.branches.at(0).text, " world");
  EXPECT_THAT(answer.branches.at(0).token_ids, ElementsAre(world, FakeTokenizer::kEos));
  const Finished& finished = *answer.branches.at(0).finished;
  EXPECT_EQ(finished.reason, FinishReason::kStop);
  EXPECT_EQ(finished.matched_stop.eos_token_id, FakeTokenizer::kEos);
}

TEST(Engine, ChatIsRenderedByTheTemplate) {
  Harness harness;
  GenerationRequest request = Greedy({}, 1);
  request.prompt = ChatPrompt{{{.role = "user", .content = "hi"}}};
  const Answer answer = harness.Run(request);
  ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal;
  const Ids& ids = answer.accepted->prompt_token_ids;
  const std::string text(ids.begin(), ids.end());
  EXPECT_THAT(text, ::testing::HasSubstr("user\nhi"));
  EXPECT_EQ(answer.accepted->prompt_tokens, static_cast<std::int32_t>(ids.size()));
}

TEST(Engine, WithoutDetokenizeThereIsNoText) {
  Harness harness;
  GenerationRequest request = Greedy(Prompt(4), 5);
  request.sampling.detokenize = false;
  const Answer answer = harness.Run(request);
  EXPECT_THAT(answer.branches.at(0).token_ids, SizeIs(5));
  EXPECT_EQ(answer.branches.at(0).text, "");
}

// Exactly one ending each, whatever ends it, and every block back at once.
TEST(Engine, C12_FourEndingsGiveAllBlocksBack) {
  Harness harness(WithWords({"one", "two"}));
  const TokenId one = harness.tokenizer->Word("one"), two = harness.tokenizer->Word("two");
  Chain(harness, 'e', {one, FakeTokenizer::kEos});
  Chain(harness, 's', {two, 's'});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(harness.Run(Greedy(Prompt(20), 5)).branches.at(0).finished->reason,
              FinishReason::kLength);
    EXPECT_EQ(harness.ExpectIdle()->finished_length, round + 1);

    GenerationRequest eos = Greedy({'e'}, 50);
    eos.sampling.ignore_eos = false;
    EXPECT_EQ(harness.Run(eos).branches.at(0).finished->matched_stop.eos_token_id,
              FakeTokenizer::kEos);
    GenerationRequest stop = Greedy({'s'}, 50);
    stop.sampling.stop = {"wos"};
    const Answer stopped = harness.Run(stop);
    EXPECT_EQ(stopped.branches.at(0).finished->matched_stop.stop_string, "wos");
    EXPECT_EQ(stopped.branches.at(0).text, "t");
    EXPECT_EQ(harness.ExpectIdle()->finished_stop, 2 * (round + 1));

    const auto stream = harness.Submit(Greedy(Prompt(20), 900));
    harness.sink.WaitForTokens(stream, 2);
    harness.engine->Abort(stream, absl::CancelledError("gone"));
    EXPECT_EQ(harness.Wait(stream).terminal->code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(harness.ExpectIdle()->cancelled, round + 1);
    const auto map = harness.engine->GetBlockMap(absl::Minutes(1));
    ASSERT_TRUE(map.ok());
    EXPECT_THAT(map->sequences, IsEmpty());
    for (const std::int32_t owners : map->owners) EXPECT_EQ(owners, 0);
  }
}

TEST(Engine, TheSnapshotBeforeTheLastMessageHasTheBlocksBack) {
  struct Watcher final : OutputSink {
    Engine* engine = nullptr;
    absl::Notification over;
    std::shared_ptr<const EngineStats> at_end;
    void OnOutput(std::vector<std::shared_ptr<TokenStream>> streams) override {
      for (const auto& stream : streams) {
        if (!stream->Take().terminal) continue;
        at_end = engine->stats();
        over.Notify();
      }
    }
  };
  const HarnessOptions options;
  Watcher watcher;
  auto engine = Engine::Create(options.engine,
                               std::make_unique<fakes::FakeModelRunner>(
                                   options.model, std::make_shared<fakes::FakeModelControl>()),
                               nullptr, nullptr, options.traits, &watcher);
  ASSERT_TRUE(engine.ok());
  watcher.engine = engine->get();
  ASSERT_TRUE((*engine)->Submit(Greedy(Prompt(40), 4)).ok());
  ASSERT_TRUE(watcher.over.WaitForNotificationWithTimeout(absl::Minutes(1)));
  EXPECT_EQ(watcher.at_end->blocks.active, 0);
  EXPECT_EQ(watcher.at_end->requests_running, 0);
  EXPECT_EQ(watcher.at_end->finished_length, 1);
  ExpectConsistent(*watcher.at_end);
}

TEST(Engine, C106_UsageIsTheSameHoweverARequestEnds) {
  Harness harness(WithWords({"ab", "cd"}));
  const TokenId ab = harness.tokenizer->Word("ab"), cd = harness.tokenizer->Word("cd");
  Chain(harness, 'x', {ab, cd, FakeTokenizer::kEos});
  for (const std::int32_t max_tokens : {1, 5, 20}) {
    const Answer answer = harness.Run(Greedy(Prompt(33), max_tokens));
    EXPECT_EQ(answer.branches.at(0).finished->completion_tokens, max_tokens);
    EXPECT_THAT(answer.branches.at(0).token_ids, SizeIs(static_cast<std::size_t>(max_tokens)));
    EXPECT_EQ(answer.branches.at(0).finished->prompt_tokens, 33);
    EXPECT_LE(answer.branches.at(0).finished->cached_tokens, 33);
  }
  GenerationRequest eos = Greedy({'x'}, 20);
  eos.sampling.ignore_eos = false;
  EXPECT_EQ(harness.Run(eos).branches.at(0).finished->completion_tokens, 3)
      << "the end-of-sequence token counts";
  GenerationRequest stop = Greedy({'x'}, 20);
  stop.sampling.stop = {"c"};
  const Answer stopped = harness.Run(stop);
  EXPECT_EQ(stopped.branches.at(0).finished->completion_tokens, 2)
      << "the token that completes a stop string counts whole";
  EXPECT_THAT(stopped.branches.at(0).token_ids, ElementsAre(ab, cd));
  EXPECT_EQ(stopped.branches.at(0).text, "ab");

  GenerationRequest two = Sampled(Prompt(33), 7, 3);
  two.sampling.n = 2;
  const Answer both = harness.Run(two);
  EXPECT_EQ(both.branches.at(0).finished->completion_tokens, 7);
  EXPECT_EQ(both.branches.at(1).finished->completion_tokens, 7);
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->generation_tokens, 1 + 5 + 20 + 3 + 2 + 14);
  EXPECT_EQ(stats->prompt_tokens, 3 * 33 + 1 + 1 + 33);
}

TEST(Engine, ASecondRequestReadsTheCachedPrefix) {
  Harness harness;
  const Ids prompt = Prompt(50);
  const Answer first = harness.Run(Greedy(prompt, 6));
  const std::int64_t computed = harness.model->num_computed_tokens();
  const Answer second = harness.Run(Greedy(prompt, 6));
  EXPECT_EQ(second.branches.at(0).token_ids, first.branches.at(0).token_ids);
  EXPECT_EQ(second.accepted->cached_tokens, 48);
  EXPECT_EQ(second.branches.at(0).finished->cached_tokens, 48);
  EXPECT_EQ(harness.model->num_computed_tokens() - computed, 2 + 5);
}

TEST(Engine, C03_AWholePromptInTheCacheStillComputesOneToken) {
  Harness harness;
  for (const std::size_t length : {15U, 16U, 17U, 31U, 32U, 33U}) {
    GenerationRequest request = Greedy(Prompt(length, length), 4);
    request.sampling.logprobs = 2;
    const Answer first = harness.Run(request);
    for (int again = 0; again < 2; ++again) {
      const Answer answer = harness.Run(request);
      EXPECT_EQ(answer.branches.at(0).token_ids, first.branches.at(0).token_ids);
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(answer.branches.at(0).logprobs[i].chosen.logprob,
                  first.branches.at(0).logprobs[i].chosen.logprob);
      }
      EXPECT_EQ(answer.accepted->cached_tokens, static_cast<std::int32_t>((length - 1) / 16 * 16));
    }
  }
}

TEST(Engine, C18_ADifferentSaltReadsNoPrefix) {
  Harness harness;
  GenerationRequest request = Greedy(Prompt(64), 2);
  request.cache_salt = "A";
  EXPECT_EQ(harness.Run(request).accepted->cached_tokens, 0);
  EXPECT_GT(harness.Run(request).accepted->cached_tokens, 0);
  request.cache_salt = "B";
  EXPECT_EQ(harness.Run(request).accepted->cached_tokens, 0);
}

TEST(Engine, CachingCanBeOffAndBypassed) {
  HarnessOptions off;
  off.engine.enable_prefix_caching = false;
  Harness without(off);
  without.Run(Greedy(Prompt(64), 2));
  EXPECT_EQ(without.Run(Greedy(Prompt(64), 2)).accepted->cached_tokens, 0);
  EXPECT_EQ(without.ExpectIdle()->blocks.cached, 0);

  Harness with;
  with.Run(Greedy(Prompt(64), 2));
  GenerationRequest bypass = Greedy(Prompt(64), 2);
  bypass.bypass_prefix_cache = true;
  EXPECT_EQ(with.Run(bypass).accepted->cached_tokens, 0);
  EXPECT_GT(with.Run(Greedy(Prompt(64), 2)).accepted->cached_tokens, 0);
}

TEST(Engine, ResetPrefixCacheFreesWhatNobodyUses) {
  Harness harness;
  harness.Run(Greedy(Prompt(64), 2));
  const std::int64_t cached = harness.ExpectIdle()->blocks.cached;
  EXPECT_EQ(cached, 4);
  const auto freed = harness.engine->ResetPrefixCache(absl::Minutes(1));
  ASSERT_TRUE(freed.ok()) << freed.status();
  EXPECT_EQ(*freed, cached);
  harness.WaitFor([](const EngineStats& s) { return s.blocks.cached == 0; });
  EXPECT_EQ(harness.Run(Greedy(Prompt(64), 2)).accepted->cached_tokens, 0);
}

TEST(Engine, TheBlockMapShowsRunningSequences) {
  Harness harness;
  StepGate gate(*harness.model);
  GenerationRequest request = Greedy(Prompt(40), 10);
  request.request_id = "shown";
  const auto stream = harness.Submit(request);
  gate.WaitUntilHeld();
  absl::StatusOr<BlockMap> map;
  std::thread asker([&] { map = harness.engine->GetBlockMap(absl::Minutes(1)); });
  gate.Open();
  asker.join();
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_THAT(map->states, SizeIs(64));
  harness.Wait(stream);
  // The query was read after some step of the request, or after its end.
  for (const BlockMap::Sequence& sequence : map->sequences) {
    EXPECT_EQ(sequence.request_id, "shown");
    EXPECT_EQ(sequence.index, 0);
    EXPECT_GE(sequence.num_computed_tokens, 40);
    EXPECT_GE(sequence.blocks.size(), 3U);
    for (const BlockId block : sequence.blocks) {
      EXPECT_EQ(map->states[static_cast<std::size_t>(block.value())], BlockMap::State::kActive);
      EXPECT_EQ(map->owners[static_cast<std::size_t>(block.value())], 1);
    }
  }
}

// --- Stops -----------------------------------------------------------------------------------

TEST(Engine, C48_MinTokensHoldsEveryEndOfSequenceBack) {
  HarnessOptions options;
  options.traits.eos_token_ids = {FakeTokenizer::kEos, FakeTokenizer::kEos2};
  Harness harness(options);
  harness.model->SetSuccessor('q', FakeTokenizer::kEos2);
  for (const std::int32_t min_tokens : {0, 1, 4}) {
    Ids prompt = Prompt(9);
    prompt.push_back('q');
    GenerationRequest request = Greedy(prompt, 50);
    request.sampling.ignore_eos = false;
    request.sampling.min_tokens = min_tokens;
    const Ids ids = harness.Run(request).branches.at(0).token_ids;
    ASSERT_GE(ids.size(), static_cast<std::size_t>(min_tokens));
    for (std::int32_t i = 0; i < min_tokens; ++i) {
      EXPECT_LT(ids[static_cast<std::size_t>(i)], FakeTokenizer::kEos);
    }
    if (min_tokens == 0) {
      EXPECT_THAT(ids, ElementsAre(FakeTokenizer::kEos2));
    }
  }
}

TEST(Engine, C50_IgnoreEosCoversEveryEndOfSequenceButNoStopId) {
  HarnessOptions options;
  options.traits.eos_token_ids = {FakeTokenizer::kEos, FakeTokenizer::kEos2};
  Harness harness(options);
  Chain(harness, 'a', {FakeTokenizer::kEos, FakeTokenizer::kEos2, 'b', 'a'});
  EXPECT_THAT(harness.Run(Greedy({'a'}, 128)).branches.at(0).token_ids, SizeIs(128));
  GenerationRequest request = Greedy({'a'}, 128);
  request.sampling.stop_token_ids = {'b'};
  const Answer answer = harness.Run(request);
  EXPECT_THAT(answer.branches.at(0).token_ids,
              ElementsAre(FakeTokenizer::kEos, FakeTokenizer::kEos2, 'b'));
  EXPECT_EQ(answer.branches.at(0).finished->matched_stop.stop_token_id, 'b');
  EXPECT_EQ(answer.branches.at(0).text, "") << "a stop token is no text";
}

TEST(Engine, C38_AStopStringOverSeveralTokensIsNeverSent) {
  Harness harness(WithWords({"DEF", "G", "HI", "J"}));
  const auto word = [&](const char* w) { return harness.tokenizer->Word(w); };
  Chain(harness, 'x', {'y', word("DEF"), word("G"), word("HI"), word("J"), 'z'});
  GenerationRequest request = Greedy({'x'}, 50);
  request.sampling.stop = {"DEFGHIJ"};
  const Answer answer = harness.Run(request);
  EXPECT_EQ(answer.branches.at(0).text, "y");
  EXPECT_EQ(answer.branches.at(0).finished->reason, FinishReason::kStop);
  EXPECT_EQ(answer.branches.at(0).finished->matched_stop.stop_string, "DEFGHIJ");
  EXPECT_THAT(answer.branches.at(0).token_ids, SizeIs(5)) << "no surplus token";
}

TEST(Engine, C39_TextHeldBackForAStopStringIsNotLost) {
  Harness harness(WithWords({"ple", "as"}));
  const auto word = [&](const char* w) { return harness.tokenizer->Word(w); };
  Chain(harness, 'x', {word("ple"), word("as"), FakeTokenizer::kEos});
  GenerationRequest request = Greedy({'x'}, 50);
  request.sampling.stop = {"please"};
  request.sampling.ignore_eos = false;
  EXPECT_EQ(harness.Run(request).branches.at(0).text, "pleas");
  request.sampling.max_tokens = 2;
  EXPECT_EQ(harness.Run(request).branches.at(0).text, "pleas");
  request.sampling.max_tokens = 50;
  request.sampling.stop_token_ids = {FakeTokenizer::kEos};
  EXPECT_EQ(harness.Run(request).branches.at(0).text, "pleas");
}

TEST(Engine, C43_CharactersSplitOverTokensArriveWhole) {
  Harness harness;
  // U+1F600 in four tokens, then a lone lead byte that the end turns into U+FFFD.
  Chain(harness, 'x', {0xF0, 0x9F, 0x98, 0x80, 0xE4});
  const Answer whole = harness.Run(Greedy({'x'}, 4));
  EXPECT_EQ(whole.branches.at(0).text, "\xF0\x9F\x98\x80");
  const Answer cut = harness.Run(Greedy({'x'}, 5));
  EXPECT_EQ(cut.branches.at(0).text, "\xF0\x9F\x98\x80\xEF\xBF\xBD");
}

// --- Sampling --------------------------------------------------------------------------------

TEST(Engine, ReturnsTheSeedItDrewAndRepeatsItsAnswer) {
  Harness harness;
  GenerationRequest request = Sampled(Prompt(12), 16, 0);
  request.sampling.seed.reset();
  const Answer first = harness.Run(request), other = harness.Run(request);
  EXPECT_NE(first.branches.at(0).finished->seed, other.branches.at(0).finished->seed);
  EXPECT_NE(first.branches.at(0).token_ids, other.branches.at(0).token_ids);
  request.sampling.seed = first.branches.at(0).finished->seed;
  const Answer again = harness.Run(request);
  EXPECT_EQ(again.branches.at(0).finished->seed, *request.sampling.seed);
  EXPECT_EQ(again.branches.at(0).token_ids, first.branches.at(0).token_ids);
}

TEST(Engine, C52_BranchesOfOneSeedDifferAndRepeat) {
  Harness harness;
  GenerationRequest request = Sampled(Prompt(20), 12, 7);
  request.sampling.n = 4;
  const Answer first = harness.Run(request), second = harness.Run(request);
  std::set<Ids> distinct;
  for (std::int32_t i = 0; i < 4; ++i) {
    distinct.insert(first.branches.at(i).token_ids);
    EXPECT_EQ(first.branches.at(i).token_ids, second.branches.at(i).token_ids);
    EXPECT_EQ(first.branches.at(i).finished->index, i);
  }
  EXPECT_THAT(distinct, SizeIs(4));
}

TEST(Engine, C53_EqualSeededRequestsGiveEqualAnswers) {
  Harness harness;
  const GenerationRequest request = Sampled(Prompt(10), 20, 5);
  const auto a = harness.Submit(request), b = harness.Submit(request);
  const Ids together_a = harness.Wait(a).branches.at(0).token_ids;
  const Ids together_b = harness.Wait(b).branches.at(0).token_ids;
  EXPECT_EQ(together_a, together_b);
  EXPECT_EQ(harness.Run(request).branches.at(0).token_ids, together_a);
}

TEST(Engine, C15_BranchesShareThePromptAndCopyTheLastBlock) {
  Harness harness;
  GenerationRequest request = Sampled(Prompt(17), 24, 7);
  request.sampling.n = 3;
  const std::int64_t computed = harness.model->num_computed_tokens();
  const Answer answer = harness.Run(request);
  EXPECT_EQ(harness.model->num_computed_tokens() - computed, 17 + 3 * 23)
      << "the prompt is computed once";
  EXPECT_EQ(harness.ExpectIdle()->blocks.copies_on_write, 2)
      << "the last of three owners writes in place";
  // Branch 0 draws what a request alone with this seed draws.
  EXPECT_EQ(harness.Run(Sampled(Prompt(17), 24, 7)).branches.at(0).token_ids,
            answer.branches.at(0).token_ids);
}

TEST(Engine, BranchesEndOneByOne) {
  Harness harness;
  GenerationRequest request = Sampled(Prompt(17), 200, 11);
  request.sampling.n = 4;
  request.sampling.ignore_eos = true;
  for (TokenId id = 0; id < 30; ++id) request.sampling.stop_token_ids.push_back(id);
  const Answer answer = harness.Run(request);
  ASSERT_TRUE(answer.terminal->ok());
  std::set<std::size_t> lengths;
  for (const auto& [index, branch] : answer.branches) {
    lengths.insert(branch.token_ids.size());
    EXPECT_TRUE(branch.finished.has_value());
  }
  EXPECT_THAT(answer.branches, SizeIs(4));
  EXPECT_GT(lengths.size(), 1U) << "the seed should give different lengths";
  harness.ExpectIdle();
}

TEST(Engine, LogprobsComeWithEveryToken) {
  Harness harness;
  GenerationRequest request = Greedy(Prompt(10), 6);
  request.sampling.logprobs = 3;
  const Answer answer = harness.Run(request);
  const Answer::Branch& branch = answer.branches.at(0);
  ASSERT_THAT(branch.logprobs, SizeIs(6));
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(branch.logprobs[i].chosen.token, branch.token_ids[i]);
    EXPECT_EQ(branch.logprobs[i].chosen.rank, 1);
    ASSERT_THAT(branch.logprobs[i].top, SizeIs(3));
    EXPECT_EQ(branch.logprobs[i].top[0].token, branch.token_ids[i]);
    EXPECT_GE(branch.logprobs[i].top[0].logprob, branch.logprobs[i].top[1].logprob);
  }
  EXPECT_THAT(harness.Run(Greedy(Prompt(10), 6)).branches.at(0).logprobs, IsEmpty());
}

std::vector<float> ChosenLogprobs(const Answer& answer) {
  std::vector<float> values;
  for (const auto& position : answer.prompt_logprobs) values.push_back(position.chosen.logprob);
  return values;
}

TEST(Engine, C58_PromptLogprobsDoNotDependOnCacheOrChunks) {
  HarnessOptions plain;
  plain.engine.enable_prefix_caching = false;
  HarnessOptions chunked;
  chunked.engine.scheduler.max_num_batched_tokens = 16;
  chunked.engine.scheduler.max_prefill_tokens = 16;
  Ids a = Prompt(60), b = Prompt(32);
  for (const TokenId id : Prompt(28, 99)) b.push_back(id);

  std::vector<std::vector<float>> expected;
  {
    Harness harness(plain);
    for (const Ids& prompt : {a, b}) {
      GenerationRequest request = Greedy(prompt, 2);
      request.sampling.prompt_logprobs = 2;
      const Answer answer = harness.Run(request);
      ASSERT_THAT(answer.prompt_logprobs, SizeIs(60));
      EXPECT_EQ(answer.prompt_logprobs[0].chosen.token, -1);
      EXPECT_THAT(answer.prompt_logprobs[0].top, IsEmpty());
      for (std::size_t i = 1; i < 60; ++i) {
        EXPECT_EQ(answer.prompt_logprobs[i].chosen.token, prompt[i]);
        EXPECT_LT(answer.prompt_logprobs[i].chosen.logprob, 0);
        EXPECT_THAT(answer.prompt_logprobs[i].top, SizeIs(2));
      }
      expected.push_back(ChosenLogprobs(answer));
    }
  }
  for (const bool a_first : {true, false}) {
    Harness harness(chunked);
    for (const bool is_a : {a_first, !a_first}) {
      GenerationRequest request = Greedy(is_a ? a : b, 2);
      request.sampling.prompt_logprobs = 2;
      const Answer answer = harness.Run(request);
      EXPECT_EQ(answer.accepted->cached_tokens, 0) << "cached rows cannot be scored";
      EXPECT_EQ(ChosenLogprobs(answer), expected[is_a ? 0 : 1]);
    }
  }
}

TEST(Engine, PromptLogprobsOfASingleToken) {
  Harness harness;
  GenerationRequest request = Greedy({42}, 2);
  request.sampling.prompt_logprobs = 0;
  const Answer answer = harness.Run(request);
  ASSERT_THAT(answer.prompt_logprobs, SizeIs(1));
  EXPECT_EQ(answer.prompt_logprobs[0].chosen.token, -1);
}

TEST(Engine, PromptLogprobsComeOncePerRequestOfSeveralBranches) {
  Harness harness;
  GenerationRequest request = Sampled(Prompt(20), 3, 1);
  request.sampling.n = 3;
  request.sampling.prompt_logprobs = 1;
  const Answer answer = harness.Run(request);
  EXPECT_THAT(answer.prompt_logprobs, SizeIs(20));
  EXPECT_THAT(answer.branches, SizeIs(3));
}

// --- Helpers for clients ---------------------------------------------------------------------

TEST(Engine, TokenizesAndDetokenizes) {
  Harness harness;
  const auto ids = harness.engine->Tokenize({.text = "a<eos>", .parse_special = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ElementsAre('a', FakeTokenizer::kEos));
  EXPECT_EQ(*harness.engine->Detokenize(*ids, true), "a");
  EXPECT_EQ(*harness.engine->Detokenize(*ids, false), "a<eos>");
  EXPECT_EQ(harness.engine->Detokenize({300}, true).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(harness.engine->TokenizeChat({{{.role = "user", .content = "x"}}}).ok());
}

TEST(Engine, SaysWhatItIs) {
  Harness harness;
  EXPECT_EQ(harness.engine->vocab_size(), 300);
  EXPECT_EQ(harness.engine->kv_geometry().block_size, 16);
  EXPECT_EQ(harness.engine->options().scheduler.max_model_len, 1024);
  EXPECT_THAT(harness.engine->traits().eos_token_ids, ElementsAre(FakeTokenizer::kEos));
}

TEST(Engine, RefusesOptionsThatCannotWork) {
  const auto create = [](const HarnessOptions& options) {
    fakes::CollectingSink sink;
    return Engine::Create(options.engine,
                          std::make_unique<fakes::FakeModelRunner>(
                              options.model, std::make_shared<fakes::FakeModelControl>()),
                          nullptr, nullptr, options.traits, &sink)
        .status();
  };
  EXPECT_TRUE(create(HarnessOptions()).ok());
  HarnessOptions too_long;
  too_long.engine.scheduler.max_model_len = 2048;
  EXPECT_THAT(std::string(create(too_long).message()), ::testing::HasSubstr("max_model_len"));
  HarnessOptions no_queue;
  no_queue.engine.max_queued_requests = 0;
  EXPECT_THAT(std::string(create(no_queue).message()), ::testing::HasSubstr("max_queued_requests"));
  HarnessOptions no_blocks;
  no_blocks.model.num_blocks = 0;
  EXPECT_THAT(std::string(create(no_blocks).message()), ::testing::HasSubstr("num_blocks"));
}

}  // namespace
}  // namespace quire::engine
