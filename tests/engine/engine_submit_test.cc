// Who may enter: checks of fields, sizes, ids and queue caps, and what can never fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "engine/engine.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {
namespace {

using fakes::Answer;
using ::testing::HasSubstr;
using ::testing::SizeIs;

absl::Status SubmitStatus(Harness& harness, GenerationRequest request) {
  auto stream = harness.engine->Submit(std::move(request));
  if (!stream.ok()) return stream.status();
  return *harness.Wait(*stream).terminal;
}

#define EXPECT_REFUSED(status, expected_code, part)                           \
  do {                                                                        \
    const absl::Status refused_ = (status);                                   \
    EXPECT_EQ(refused_.code(), absl::StatusCode::expected_code) << refused_;  \
    EXPECT_THAT(std::string(refused_.message()), ::testing::HasSubstr(part)); \
  } while (false)

TEST(EngineSubmit, C46_TokenIdsOutsideTheVocabularyAreRefused) {
  Harness harness;
  for (const TokenId bad : {300, -1, 2147483647, static_cast<TokenId>(4294967294U)}) {
    EXPECT_REFUSED(SubmitStatus(harness, Greedy({1, bad}, 2)), kInvalidArgument, "token_ids[1]");
    GenerationRequest biased = Greedy({1}, 2);
    biased.sampling.logit_bias[bad] = 1;
    EXPECT_REFUSED(SubmitStatus(harness, biased), kInvalidArgument, "logit_bias");
  }
  EXPECT_TRUE(SubmitStatus(harness, Greedy({299}, 2)).ok());
  EXPECT_EQ(harness.ExpectIdle()->refused, 8);
}

TEST(EngineSubmit, C45_RefusedPromptsLeaveNoTrace) {
  Harness harness;
  const auto probe = harness.Expected(Prompt(30), 10);
  EXPECT_EQ(harness.Run(Greedy(Prompt(30), 10)).branches.at(0).token_ids, probe);
  EXPECT_FALSE(SubmitStatus(harness, Greedy({5, 100000}, 2)).ok());
  GenerationRequest not_utf8 = Greedy({}, 2);
  not_utf8.prompt = TextPrompt{.text = "ab\xff"};
  EXPECT_REFUSED(SubmitStatus(harness, not_utf8), kInvalidArgument, "UTF-8");
  EXPECT_REFUSED(SubmitStatus(harness, Greedy({}, 2)), kInvalidArgument, "token_ids is empty");
  EXPECT_EQ(harness.Run(Greedy(Prompt(30), 10)).branches.at(0).token_ids, probe);
}

TEST(EngineSubmit, C72_EmptyPromptsAndWildMaxTokens) {
  Harness harness;
  GenerationRequest empty = Greedy({}, 2);
  empty.prompt = TextPrompt{};
  EXPECT_REFUSED(SubmitStatus(harness, empty), kInvalidArgument, "no tokens");
  empty.prompt = ChatPrompt{};
  EXPECT_REFUSED(SubmitStatus(harness, empty), kInvalidArgument, "messages");
  EXPECT_REFUSED(SubmitStatus(harness, Greedy({1}, 0)), kInvalidArgument, "max_tokens");
  EXPECT_REFUSED(SubmitStatus(harness, Greedy({1}, -1)), kInvalidArgument, "max_tokens");
  const Answer all = harness.Run(Greedy(Prompt(1000), std::numeric_limits<std::int32_t>::max()));
  EXPECT_EQ(all.branches.at(0).finished->completion_tokens, 24);
  EXPECT_EQ(all.branches.at(0).finished->detail, "max_model_len");
}

TEST(EngineSubmit, EveryRefusalNamesItsField) {
  Harness harness;
  const auto with = [](auto change) {
    GenerationRequest request = Greedy({1}, 2);
    change(request);
    return request;
  };
  EXPECT_REFUSED(SubmitStatus(harness, with([](auto& r) { r.sampling.temperature = NAN; })),
                 kInvalidArgument, "temperature");
  EXPECT_REFUSED(SubmitStatus(harness, with([](auto& r) { r.sampling.top_p = 1.5; })),
                 kInvalidArgument, "top_p");
  EXPECT_REFUSED(SubmitStatus(harness, with([](auto& r) { r.sampling.n = 0; })), kInvalidArgument,
                 "n");
  EXPECT_REFUSED(SubmitStatus(harness, with([](auto& r) { r.sampling.stop = {""}; })),
                 kInvalidArgument, "stop");
  EXPECT_REFUSED(SubmitStatus(harness, with([](auto& r) { r.sampling.logprobs = 21; })),
                 kInvalidArgument, "logprobs");
  EXPECT_REFUSED(SubmitStatus(harness, with([](auto& r) { r.sampling.logprobs = -1; })),
                 kInvalidArgument, "logprobs asks for 300");
  EXPECT_REFUSED(SubmitStatus(harness, with([](auto& r) { r.sampling.prompt_logprobs = 21; })),
                 kInvalidArgument, "prompt_logprobs");
  EXPECT_REFUSED(SubmitStatus(harness, with([](auto& r) { r.request_id = std::string(257, 'x'); })),
                 kInvalidArgument, "request_id");
  EXPECT_REFUSED(
      SubmitStatus(harness, with([](auto& r) { r.cache_salt = std::string(1000, 'x'); })),
      kInvalidArgument, "cache_salt");
}

TEST(EngineSubmit, SeveralBranchesNeedRandomnessAndRoom) {
  HarnessOptions options;
  options.engine.max_n = 64;
  options.engine.scheduler.max_num_seqs = 4;
  Harness harness(options);
  GenerationRequest greedy = Greedy({1}, 2);
  greedy.sampling.n = 2;
  EXPECT_REFUSED(SubmitStatus(harness, greedy), kInvalidArgument, "n must be 1");
  GenerationRequest many = Sampled({1}, 2, 1);
  many.sampling.n = 5;
  EXPECT_REFUSED(SubmitStatus(harness, many), kInvalidArgument, "at most 4");
  many.sampling.n = 4;
  EXPECT_TRUE(SubmitStatus(harness, many).ok());
}

TEST(EngineSubmit, ModelDefaultsCount) {
  HarnessOptions options;
  options.traits.sampling_defaults.temperature = 0;
  Harness harness(options);
  GenerationRequest request = Greedy(Prompt(9), 8);
  request.sampling.temperature.reset();
  EXPECT_EQ(harness.Run(request).branches.at(0).token_ids, harness.Expected(Prompt(9), 8));
}

TEST(EngineSubmit, WithoutATokenizerOnlyIdsAreTaken) {
  HarnessOptions options;
  options.with_tokenizer = options.with_chat_template = false;
  Harness harness(options);
  GenerationRequest text = Greedy({}, 2);
  text.prompt = TextPrompt{.text = "x"};
  EXPECT_REFUSED(SubmitStatus(harness, text), kFailedPrecondition, "tokenizer");
  text.prompt = ChatPrompt{{{.role = "user", .content = "x"}}};
  EXPECT_REFUSED(SubmitStatus(harness, text), kFailedPrecondition, "tokenizer");
  GenerationRequest stop = Greedy({1}, 2);
  stop.sampling.stop = {"x"};
  EXPECT_REFUSED(SubmitStatus(harness, stop), kInvalidArgument, "stop");
  EXPECT_THAT(harness.Run(Greedy({1}, 2)).branches.at(0).token_ids, SizeIs(2));
  EXPECT_EQ(harness.engine->Tokenize({.text = "x"}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(EngineSubmit, WithoutAChatTemplateChatIsRefused) {
  HarnessOptions options;
  options.with_chat_template = false;
  Harness harness(options);
  GenerationRequest chat = Greedy({}, 2);
  chat.prompt = ChatPrompt{{{.role = "user", .content = "x"}}};
  EXPECT_REFUSED(SubmitStatus(harness, chat), kFailedPrecondition, "chat template");
}

TEST(EngineSubmit, C63_TextIsMeasuredBeforeItIsEncoded) {
  HarnessOptions options;
  options.engine.max_prompt_bytes = 1000;
  Harness harness(options);
  GenerationRequest request = Greedy({}, 2);
  request.prompt = TextPrompt{.text = std::string(1001, 'a')};
  const auto refused = harness.engine->Submit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_REFUSED(refused.status(), kInvalidArgument, "1001 bytes, this server allows at most 1000");
  request.prompt = ChatPrompt{{{.role = "user", .content = std::string(1000, 'a')}}};
  EXPECT_REFUSED(SubmitStatus(harness, request), kInvalidArgument, "1004 bytes");
  request.prompt = TextPrompt{.text = std::string(1000, 'a')};
  EXPECT_TRUE(SubmitStatus(harness, request).ok());
}

// --- What can never fit ----------------------------------------------------------------------

TEST(EngineSubmit, C20_APromptLargerThanThePoolIsRefusedAtOnceWithBothNumbers) {
  HarnessOptions options;
  options.model.num_blocks = 8;  // 128 slots.
  Harness harness(options);
  const auto refused = harness.engine->Submit(Greedy(Prompt(129), 1));
  EXPECT_REFUSED(refused.status(), kInvalidArgument, "129");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("128"));
  EXPECT_THAT(harness.Run(Greedy(Prompt(10), 4)).branches.at(0).token_ids, SizeIs(4));
  EXPECT_EQ(harness.Run(Greedy(Prompt(127), 1)).branches.at(0).finished->completion_tokens, 1);
}

TEST(EngineSubmit, C14_OverlongPromptsLeaveNoBlocksBehind) {
  Harness harness;
  for (int i = 0; i < 50; ++i) {
    EXPECT_REFUSED(harness.engine->Submit(Greedy(Prompt(1025), 4)).status(), kInvalidArgument,
                   "1025");
  }
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(harness.Run(Greedy(Prompt(40, i), 4)).terminal->ok());
  }
  EXPECT_EQ(harness.ExpectIdle()->refused, 50);
}

// The rule (DESIGN.md 5): a prompt must leave room for one token; max_tokens is clamped to the room
// there is and never makes a request impossible, so (60, 5) ends after 4 tokens and says why.
TEST(EngineSubmit, C37_TheLengthLimitIsExact) {
  HarnessOptions options;
  options.engine.scheduler.max_model_len = 64;
  Harness harness(options);
  struct Case {
    std::size_t prompt;
    std::optional<std::int32_t> max_tokens;
    std::int32_t completion;
    const char* detail;
  };
  for (const Case& c : {Case{63, 1, 1, ""}, Case{60, 5, 4, "max_model_len"}, Case{60, 4, 4, ""},
                        Case{10, std::nullopt, 54, "max_model_len"}}) {
    GenerationRequest request = Greedy(Prompt(c.prompt), 1);
    request.sampling.max_tokens = c.max_tokens;
    const Answer answer = harness.Run(request);
    ASSERT_TRUE(answer.terminal->ok()) << *answer.terminal;
    const Finished& finished = *answer.branches.at(0).finished;
    EXPECT_EQ(finished.reason, FinishReason::kLength);
    EXPECT_EQ(finished.completion_tokens, c.completion) << c.prompt;
    EXPECT_EQ(finished.detail, c.detail) << c.prompt;
  }
  for (const std::size_t length : {64U, 65U}) {
    const absl::Status status = harness.engine->Submit(Greedy(Prompt(length), 1)).status();
    EXPECT_REFUSED(status, kInvalidArgument, std::to_string(length));
    EXPECT_THAT(std::string(status.message()), HasSubstr("is 64"));
  }
}

TEST(EngineSubmit, ATextThatDoesNotFitEndsItsStream) {
  HarnessOptions options;
  options.engine.scheduler.max_model_len = 64;
  Harness harness(options);
  GenerationRequest request = Greedy({}, 2);
  request.prompt = TextPrompt{.text = std::string(64, 'a')};
  const auto stream = harness.Submit(request);
  const Answer answer = harness.Wait(stream);
  EXPECT_REFUSED(*answer.terminal, kInvalidArgument, "64");
  EXPECT_FALSE(answer.accepted.has_value());
  EXPECT_EQ(harness.ExpectIdle()->refused, 1);
}

TEST(EngineSubmit, TruncationKeepsTheLastTokens) {
  HarnessOptions options;
  options.engine.scheduler.max_model_len = 64;
  Harness harness(options);
  const std::vector<TokenId> prompt = Prompt(100);
  GenerationRequest request = Greedy(prompt, 4);
  request.sampling.truncate_prompt_tokens = 20;
  const Answer last20 = harness.Run(request);
  EXPECT_EQ(last20.accepted->prompt_tokens, 20);
  EXPECT_EQ(last20.branches.at(0).token_ids,
            harness.Expected({prompt.end() - 20, prompt.end()}, 4));
  request.sampling.truncate_prompt_tokens = -1;
  const Answer whole_context = harness.Run(request);
  EXPECT_EQ(whole_context.accepted->prompt_tokens, 60) << "leaves room for max_tokens";
  EXPECT_EQ(whole_context.branches.at(0).finished->detail, "");
  EXPECT_EQ(whole_context.branches.at(0).token_ids,
            harness.Expected({prompt.end() - 60, prompt.end()}, 4));
}

// --- Ids and the queue -----------------------------------------------------------------------

TEST(EngineSubmit, C34_AnIdInUseIsRefusedAndTheFirstRequestIsUnharmed) {
  Harness harness;
  StepGate gate(*harness.model);
  GenerationRequest request = Greedy(Prompt(12), 20);
  request.request_id = "same";
  const auto first = harness.Submit(request);
  gate.WaitUntilHeld();
  EXPECT_EQ(harness.engine->Submit(request).status().code(), absl::StatusCode::kAlreadyExists);
  gate.Open();
  EXPECT_EQ(harness.Wait(first).branches.at(0).token_ids, harness.Expected(Prompt(12), 20));
  EXPECT_TRUE(harness.Run(request).terminal->ok()) << "free again after the end";
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->refused, 1);
  EXPECT_EQ(stats->finished_length, 2);
}

TEST(EngineSubmit, MakesDistinctIdsWhereTheClientGivesNone) {
  Harness harness;
  const auto a = harness.Submit(Greedy({1}, 1)), b = harness.Submit(Greedy({1}, 1));
  EXPECT_FALSE(a->request_id().empty());
  EXPECT_NE(a->request_id(), b->request_id());
  harness.Wait(a);
  harness.Wait(b);
}

TEST(EngineSubmit, C91_AFullQueueRefusesFastWithNumbersAndAHint) {
  HarnessOptions options;
  options.engine.max_queued_requests = 3;
  Harness harness(options);
  StepGate gate(*harness.model);
  std::vector<std::shared_ptr<TokenStream>> streams = {harness.Submit(Greedy(Prompt(8), 4))};
  gate.WaitUntilHeld();  // The first is being computed; the next ones queue up.
  for (std::uint64_t i = 0; i < 3; ++i) {
    streams.push_back(harness.Submit(Greedy(Prompt(8, i + 2), 4)));
  }
  EXPECT_REFUSED(harness.engine->Submit(Greedy(Prompt(8), 4)).status(), kResourceExhausted,
                 "3 of 3");
  GenerationRequest text = Greedy({}, 2);
  text.prompt = TextPrompt{.text = std::string(1000, 'a')};
  EXPECT_REFUSED(harness.engine->Submit(text).status(), kResourceExhausted, "3 of 3");
  EXPECT_GT(harness.engine->retry_after(), absl::ZeroDuration());
  gate.Open();
  for (const auto& stream : streams) EXPECT_TRUE(harness.Wait(stream).terminal->ok());
  EXPECT_TRUE(harness.Run(Greedy(Prompt(8), 4)).terminal->ok()) << "there is room again";
  EXPECT_EQ(harness.ExpectIdle()->refused, 2);
}

TEST(EngineSubmit, QueuedPromptTokensAreBounded) {
  HarnessOptions options;
  options.engine.max_queued_prompt_tokens = 100;
  Harness harness(options);
  StepGate gate(*harness.model);
  const auto first = harness.Submit(Greedy(Prompt(8), 1));
  gate.WaitUntilHeld();
  const auto queued = harness.Submit(Greedy(Prompt(60), 1));
  EXPECT_REFUSED(harness.engine->Submit(Greedy(Prompt(41), 1)).status(), kResourceExhausted,
                 "60 of 100 prompt tokens");
  const auto fits = harness.Submit(Greedy(Prompt(40), 1));
  gate.Open();
  for (const auto& stream : {first, queued, fits}) EXPECT_TRUE(harness.Wait(stream).terminal->ok());
}

TEST(EngineSubmit, RetryHintGrowsWithTheQueue) {
  Harness harness;
  harness.model->SetOnStep([&harness](const kernels::BatchView&) {
    harness.clock.Advance(absl::Seconds(1));
    return absl::OkStatus();
  });
  EXPECT_EQ(harness.engine->retry_after(), absl::Seconds(1)) << "nothing is known yet";
  harness.Run(Greedy(Prompt(8), 4));
  EXPECT_EQ(harness.engine->retry_after(), absl::Seconds(4)) << "a request takes four steps";
}

TEST(EngineSubmit, ManyThreadsMaySubmitAtOnce) {
  Harness harness;
  std::vector<std::thread> threads;
  std::vector<std::vector<std::shared_ptr<TokenStream>>> streams(4);
  for (std::size_t t = 0; t < streams.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 25; ++i) {
        GenerationRequest request = Greedy(Prompt(10, 100 * t + i), 5);
        if (i % 2 == 0) request.prompt = TextPrompt{.text = "thread " + std::to_string(i)};
        streams[t].push_back(harness.Submit(request));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_thread : streams) {
    for (const auto& stream : of_thread) {
      EXPECT_EQ(harness.Wait(stream).branches.at(0).finished->completion_tokens, 5);
    }
  }
  EXPECT_EQ(harness.ExpectIdle()->finished_length, 100);
}

}  // namespace
}  // namespace quire::engine
