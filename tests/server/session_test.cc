// Sessions over the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/convert.h"
#include "tests/server/harness.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;

v1::GenerateRequest Turn(const std::string& session_id, const std::vector<TokenId>& part) {
  v1::GenerateRequest request = Request(part, 20);
  request.set_session_id(session_id);
  return request;
}
v1::GenerateRequest Continue(const std::string& session_id, const std::vector<TokenId>& part) {
  v1::GenerateRequest request = Turn(session_id, part);
  request.set_continue_session(true);
  return request;
}

TEST(Session, APartOfATextContinuesItsTurn) {
  Harness harness;
  const auto first = harness.client().GenerateUnary(Turn("s", Prompt(40)), {});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = harness.client().GenerateUnary(Continue("s", Prompt(10, 2)), {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->accepted().prompt_tokens(), 70);
  EXPECT_EQ(second->accepted().cached_tokens(), 48);

  // The same without a session, all of it sent.
  std::vector<TokenId> whole = Prompt(40);
  const auto& ids = first->completions(0).token_ids();
  whole.insert(whole.end(), ids.begin(), ids.end());
  for (const TokenId id : Prompt(10, 2)) whole.push_back(id);
  const auto sent_whole = harness.client().GenerateUnary(Request(whole, 20), {});
  ASSERT_TRUE(sent_whole.ok());
  EXPECT_EQ(std::vector<TokenId>(second->completions(0).token_ids().begin(),
                                 second->completions(0).token_ids().end()),
            std::vector<TokenId>(sent_whole->completions(0).token_ids().begin(),
                                 sent_whole->completions(0).token_ids().end()));
}

TEST(Session, ContinuedTextGetsNoBeginningMarkUnlessToldSo) {
  v1::GenerateRequest request;
  request.mutable_text()->set_text("x");
  const auto add_special = [&] {
    const auto converted = ToEngine(request, "m", absl::InfiniteFuture());
    return std::get<engine::TextPrompt>(converted->prompt).add_special;
  };
  EXPECT_TRUE(add_special());
  request.set_continue_session(true);
  EXPECT_FALSE(add_special());
  request.mutable_text()->set_add_special(true);
  EXPECT_TRUE(add_special());
}

TEST(Session, RefusalsComeBeforeAnyMessage) {
  Harness harness;
  const auto end_of = [&](const v1::GenerateRequest& request) {
    Collected call(&harness.client(), request);
    const absl::Status status = call.Wait().status;
    EXPECT_TRUE(call.messages().empty());
    return status;
  };
  const absl::Status unknown = end_of(Continue("nobody", Prompt(3)));
  EXPECT_TRUE(absl::IsNotFound(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("session_id"));

  v1::GenerateRequest branches = Turn("s", Prompt(3));
  branches.mutable_sampling()->set_n(3);
  branches.mutable_sampling()->set_temperature(1);
  const absl::Status two = end_of(branches);
  EXPECT_TRUE(absl::IsInvalidArgument(two));
  EXPECT_THAT(std::string(two.message()), HasSubstr("n must be 1 with a session_id"));

  ASSERT_TRUE(harness.client().GenerateUnary(Turn("s", Prompt(900)), {}).ok());
  const absl::Status too_long = end_of(Continue("s", Prompt(200)));
  EXPECT_TRUE(absl::IsInvalidArgument(too_long)) << too_long;
  EXPECT_THAT(std::string(too_long.message()), HasSubstr("920 tokens of the session and 200 new"));

  v1::GenerateRequest chat = Continue("s", {});
  auto* message = chat.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  const absl::Status refused = end_of(chat);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("continue_session"));
}

TEST(Session, EndSessionSaysWhetherThereWasOne) {
  Harness harness;
  v1::GenerateRequest salted = Turn("s", Prompt(40));
  salted.set_cache_salt("tenant");
  ASSERT_TRUE(harness.client().GenerateUnary(salted, {}).ok());
  EXPECT_EQ(harness.WaitUntilIdle().blocks().sessions(), 1);
  EXPECT_FALSE(*harness.client().EndSession("s", ""));
  EXPECT_TRUE(*harness.client().EndSession("s", "tenant"));
  EXPECT_FALSE(*harness.client().EndSession("s", "tenant"));
  const v1::Stats stats =
      harness.WaitForStats([](const v1::Stats& s) { return s.blocks().sessions() == 0; });
  EXPECT_EQ(stats.blocks().leased(), 0);
  EXPECT_EQ(stats.blocks().cached(), 3);
  const auto missing = harness.client().EndSession("", "");
  EXPECT_TRUE(absl::IsInvalidArgument(missing.status())) << missing.status();
}

TEST(Session, StatsAndBlockMapShowLeases) {
  Harness harness;
  ASSERT_TRUE(harness.client().GenerateUnary(Turn("one", Prompt(40)), {}).ok());
  ASSERT_TRUE(harness.client().GenerateUnary(Continue("one", Prompt(10, 2)), {}).ok());
  const v1::Stats stats = harness.WaitUntilIdle();
  ExpectConservation(stats);
  EXPECT_EQ(stats.blocks().sessions(), 1);
  EXPECT_EQ(stats.blocks().leased(), 5) << "89 of 90 tokens are computed";
  EXPECT_EQ(stats.hit_tokens_by_source().at("session"), 48);
  const auto map = harness.client().GetBlockMap();
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(map->sessions_size(), 1);
  EXPECT_EQ(map->sessions(0).session_id(), "one");
  EXPECT_EQ(map->sessions(0).num_tokens(), 90);
  EXPECT_EQ(map->sessions(0).block_ids_size(), 5);
  EXPECT_GT(map->sessions(0).expires_in_seconds(), 500);
  EXPECT_LE(map->sessions(0).expires_in_seconds(), 600);
  for (const std::int32_t block : map->sessions(0).block_ids()) {
    EXPECT_EQ(map->states(block), v1::BLOCK_STATE_CACHED);
    EXPECT_EQ(map->owners(block), 0);
  }
}

}  // namespace
}  // namespace quire::server
