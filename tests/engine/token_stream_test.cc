#include "engine/token_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace quire::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

Delta MakeDelta(std::int32_t index, std::vector<TokenId> ids, std::string text) {
  return {.index = index, .token_ids = std::move(ids), .text = std::move(text)};
}

TEST(TokenStream, StartsEmpty) {
  TokenStream stream("r");
  EXPECT_EQ(stream.request_id(), "r");
  EXPECT_TRUE(stream.Take().empty());
  EXPECT_EQ(stream.num_pending_tokens(), 0);
}

TEST(TokenStream, MergesWhatTheReaderHasNotTaken) {
  TokenStream stream("r");
  stream.PushDelta(MakeDelta(1, {7}, "x"));
  stream.PushDelta(MakeDelta(0, {1, 2}, "ab"));
  stream.PushDelta(MakeDelta(1, {8}, "y"));
  EXPECT_EQ(stream.num_pending_tokens(), 4);

  const StreamChunk chunk = stream.Take();
  ASSERT_THAT(chunk.deltas, SizeIs(2));
  EXPECT_EQ(chunk.deltas[0].index, 0);
  EXPECT_THAT(chunk.deltas[0].token_ids, ElementsAre(1, 2));
  EXPECT_EQ(chunk.deltas[0].text, "ab");
  EXPECT_EQ(chunk.deltas[1].index, 1);
  EXPECT_THAT(chunk.deltas[1].token_ids, ElementsAre(7, 8));
  EXPECT_EQ(chunk.deltas[1].text, "xy");
  EXPECT_TRUE(stream.Take().empty());
  EXPECT_EQ(stream.num_pending_tokens(), 0);
}

TEST(TokenStream, MergesLogprobsInOrder) {
  TokenStream stream("r");
  Delta first = MakeDelta(0, {1}, "");
  first.logprobs.push_back({.chosen = {.token = 1, .logprob = -1, .rank = 1}});
  Delta second = MakeDelta(0, {2}, "");
  second.logprobs.push_back({.chosen = {.token = 2, .logprob = -2, .rank = 3}});
  stream.PushDelta(first);
  stream.PushDelta(second);
  const StreamChunk chunk = stream.Take();
  ASSERT_THAT(chunk.deltas, SizeIs(1));
  ASSERT_THAT(chunk.deltas[0].logprobs, SizeIs(2));
  EXPECT_EQ(chunk.deltas[0].logprobs[0].chosen.token, 1);
  EXPECT_EQ(chunk.deltas[0].logprobs[1].chosen.rank, 3);
}

TEST(TokenStream, NothingFollowsTheTerminalStatus) {
  TokenStream stream("r");
  stream.PushTerminal(absl::CancelledError("first"));
  stream.PushTerminal(absl::OkStatus());
  stream.PushDelta(MakeDelta(0, {1}, "late"));
  stream.PushFinished({.index = 0});
  stream.PushAccepted({.prompt_tokens = 3});
  StreamChunk chunk = stream.Take();
  ASSERT_TRUE(chunk.terminal.has_value());
  EXPECT_EQ(chunk.terminal->message(), "first");
  EXPECT_TRUE(chunk.deltas.empty());
  EXPECT_TRUE(chunk.finished.empty());
  EXPECT_FALSE(chunk.accepted.has_value());
  stream.PushTerminal(absl::OkStatus());
  EXPECT_TRUE(stream.Take().empty());
}

TEST(TokenStream, PushTakesAllOfAChunkAndEmptiesIt) {
  TokenStream stream("r");
  StreamChunk chunk;
  chunk.accepted.emplace().prompt_tokens = 5;
  chunk.prompt_logprobs.resize(5);
  chunk.deltas.push_back(MakeDelta(0, {4}, "d"));
  chunk.finished.push_back({.index = 0, .completion_tokens = 1});
  chunk.terminal = absl::OkStatus();
  stream.Push(chunk);
  EXPECT_TRUE(chunk.empty());

  const StreamChunk taken = stream.Take();
  EXPECT_EQ(taken.accepted->prompt_tokens, 5);
  EXPECT_THAT(taken.prompt_logprobs, SizeIs(5));
  EXPECT_THAT(taken.deltas, SizeIs(1));
  ASSERT_THAT(taken.finished, SizeIs(1));
  EXPECT_EQ(taken.finished[0].completion_tokens, 1);
  EXPECT_TRUE(taken.terminal->ok());
}

TEST(TokenStream, AReaderOnAnotherThreadMissesNothing) {
  constexpr TokenId kTokens = 20000;
  TokenStream stream("r");
  std::thread writer([&stream] {
    for (TokenId token = 0; token < kTokens; ++token) {
      stream.PushDelta(MakeDelta(0, {token}, "t"));
    }
    stream.PushTerminal(absl::OkStatus());
  });
  std::vector<TokenId> read;
  std::size_t text_bytes = 0;
  for (bool over = false; !over;) {
    const StreamChunk chunk = stream.Take();
    for (const Delta& delta : chunk.deltas) {
      read.insert(read.end(), delta.token_ids.begin(), delta.token_ids.end());
      text_bytes += delta.text.size();
    }
    over = chunk.terminal.has_value();
  }
  writer.join();
  ASSERT_EQ(read.size(), static_cast<std::size_t>(kTokens));
  for (TokenId token = 0; token < kTokens; ++token) {
    ASSERT_EQ(read[static_cast<std::size_t>(token)], token);
  }
  EXPECT_EQ(text_bytes, static_cast<std::size_t>(kTokens));
}

}  // namespace
}  // namespace quire::engine
