#include "server/convert.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/status.h"
#include "server/wire.h"

namespace quire::server {
namespace {

using engine::StreamChunk;
using engine::sampling::PositionLogprobs;
using google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::GenerateRequest WithIds(std::vector<int> ids) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  return request;
}

PositionLogprobs Position(TokenId token, int num_top) {
  PositionLogprobs out;
  out.chosen = {.token = token, .logprob = -0.5F, .rank = 2};
  for (int i = 0; i < num_top; ++i) {
    out.top.push_back({.token = 40'000 + i, .logprob = -1.25F, .rank = i + 1});
  }
  return out;
}

TEST(ConvertRequest, UnsetFieldsStayUnset) {
  const auto request = ToEngine(WithIds({1, 2}), "m", absl::InfiniteFuture());
  ASSERT_TRUE(request.ok());
  const auto& s = request->sampling;
  EXPECT_EQ(std::get<engine::TokenPrompt>(request->prompt).ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(s.n, 1);
  EXPECT_FALSE(s.temperature || s.top_p || s.top_k || s.min_p || s.repetition_penalty || s.seed ||
               s.max_tokens || s.logprobs || s.prompt_logprobs || s.truncate_prompt_tokens);
  EXPECT_EQ(s.presence_penalty, 0);
  EXPECT_EQ(s.min_tokens, 0);
  EXPECT_TRUE(s.detokenize);
  EXPECT_TRUE(s.skip_special_tokens);
  EXPECT_FALSE(s.ignore_eos || s.include_stop_str_in_output);
  EXPECT_EQ(request->deadline, absl::InfiniteFuture());
}

TEST(ConvertRequest, EverySetFieldArrivesEvenWhenItIsZero) {
  v1::GenerateRequest in = WithIds({3});
  in.set_request_id("r-1");
  in.set_model("m");
  in.set_priority(-4);
  in.set_cache_salt("salt");
  in.set_bypass_prefix_cache(true);
  in.set_session_id("tale");
  in.set_continue_session(true);
  in.set_client_id("me");
  auto& p = *in.mutable_sampling();
  p.set_temperature(0);
  p.set_top_p(0.25);
  p.set_top_k(-1);
  p.set_min_p(0);
  p.set_seed(~0ULL);
  p.set_n(3);
  p.set_presence_penalty(-2);
  p.set_frequency_penalty(1.5);
  p.set_repetition_penalty(1.25);
  (*p.mutable_logit_bias())[7] = -100;
  p.add_allowed_token_ids(5);
  p.add_bad_words("bad");
  p.set_max_tokens(0);
  p.set_min_tokens(2);
  p.set_ignore_eos(true);
  p.add_stop("END");
  p.add_stop_token_ids(9);
  p.set_include_stop_str_in_output(true);
  p.set_logprobs(0);
  p.set_prompt_logprobs(-1);
  p.set_truncate_prompt_tokens(-1);
  p.set_detokenize(false);
  p.set_skip_special_tokens(false);

  const absl::Time deadline = absl::FromUnixSeconds(5);
  const auto out = ToEngine(in, "m", deadline);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->request_id, "r-1");
  EXPECT_EQ(out->priority, -4);
  EXPECT_EQ(out->cache_salt, "salt");
  EXPECT_TRUE(out->bypass_prefix_cache);
  EXPECT_EQ(out->session_id, "tale");
  EXPECT_TRUE(out->continue_session);
  EXPECT_EQ(out->client_id, "me");
  EXPECT_EQ(out->deadline, deadline);
  const auto& s = out->sampling;
  EXPECT_EQ(s.temperature, 0);
  EXPECT_EQ(s.top_p, 0.25);
  EXPECT_EQ(s.top_k, -1);
  EXPECT_EQ(s.min_p, 0);
  EXPECT_EQ(s.seed, ~0ULL);
  EXPECT_EQ(s.n, 3);
  EXPECT_EQ(s.presence_penalty, -2);
  EXPECT_EQ(s.frequency_penalty, 1.5);
  EXPECT_EQ(s.repetition_penalty, 1.25);
  EXPECT_EQ(s.logit_bias.at(7), -100);
  EXPECT_THAT(s.allowed_token_ids, ElementsAre(5));
  EXPECT_THAT(s.bad_words, ElementsAre("bad"));
  EXPECT_EQ(s.max_tokens, 0);
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_THAT(s.stop, ElementsAre("END"));
  EXPECT_THAT(s.stop_token_ids, ElementsAre(9));
  EXPECT_TRUE(s.include_stop_str_in_output);
  EXPECT_EQ(s.logprobs, 0);
  EXPECT_EQ(s.prompt_logprobs, -1);
  EXPECT_EQ(s.truncate_prompt_tokens, -1);
  EXPECT_FALSE(s.detokenize);
  EXPECT_FALSE(s.skip_special_tokens);
}

TEST(ConvertRequest, TextPromptsAddSpecialTokensUnlessTold) {
  v1::GenerateRequest in;
  in.mutable_text()->set_text("hi");
  auto out = ToEngine(in, "m", absl::InfiniteFuture());
  ASSERT_TRUE(out.ok());
  EXPECT_TRUE(std::get<engine::TextPrompt>(out->prompt).add_special);
  EXPECT_FALSE(std::get<engine::TextPrompt>(out->prompt).parse_special);
  in.mutable_text()->set_add_special(false);
  in.mutable_text()->set_parse_special(true);
  out = ToEngine(in, "m", absl::InfiniteFuture());
  EXPECT_FALSE(std::get<engine::TextPrompt>(out->prompt).add_special);
  EXPECT_TRUE(std::get<engine::TextPrompt>(out->prompt).parse_special);
}

TEST(ConvertRequest, ChatKeepsRolesAndOrder) {
  v1::GenerateRequest in;
  for (const char* role : {"system", "user"}) {
    auto* message = in.mutable_chat()->add_messages();
    message->set_role(role);
    message->set_content(std::string("I am ") + role);
  }
  const auto out = ToEngine(in, "m", absl::InfiniteFuture());
  ASSERT_TRUE(out.ok());
  const auto& messages = std::get<engine::ChatPrompt>(out->prompt).messages;
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[1].content, "I am user");
}

TEST(ConvertRequest, RefusesWhatHasNoCounterpart) {
  const auto no_prompt = ToEngine(v1::GenerateRequest(), "m", absl::InfiniteFuture()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(no_prompt));
  EXPECT_EQ(FieldOf(AsStd(no_prompt.message())), "prompt");

  auto other_model = WithIds({1});
  other_model.set_model("gpt");
  const auto not_found = ToEngine(other_model, "m", absl::InfiniteFuture()).status();
  EXPECT_TRUE(absl::IsNotFound(not_found));
  EXPECT_THAT(std::string(not_found.message()), HasSubstr("\"gpt\""));

  for (const std::string& id :
       {std::string("a b"), std::string("a\n"), std::string("ü"), std::string(129, 'x')}) {
    auto bad_id = WithIds({1});
    bad_id.set_request_id(id);
    const auto status = ToEngine(bad_id, "m", absl::InfiniteFuture()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << id;
    EXPECT_EQ(FieldOf(AsStd(status.message())), "request_id");
  }
  auto good_id = WithIds({1});
  good_id.set_request_id(std::string(128, '~'));
  EXPECT_TRUE(ToEngine(good_id, "m", absl::InfiniteFuture()).ok());
}

StreamChunk FirstChunk() {
  StreamChunk chunk;
  chunk.accepted = engine::Accepted{.prompt_tokens = 3,
                                    .cached_tokens = 1,
                                    .queue_time = absl::Milliseconds(1.5),
                                    .prompt_token_ids = {4, 5, 6}};
  PositionLogprobs nothing_predicts_this;
  chunk.prompt_logprobs = {nothing_predicts_this, Position(5, 1), Position(6, 1)};
  chunk.deltas = {{.index = 0, .token_ids = {7, 8}, .text = "ab", .logprobs = {}},
                  {.index = 1, .token_ids = {9}, .text = "", .logprobs = {}}};
  return chunk;
}

StreamChunk LastChunk() {
  StreamChunk chunk;
  chunk.deltas = {{.index = 0, .token_ids = {10}, .text = "c", .logprobs = {}}};
  engine::Finished stop;
  stop.index = 0;
  stop.reason = engine::FinishReason::kStop;
  stop.matched_stop.stop_string = "c";
  stop.prompt_tokens = 3;
  stop.cached_tokens = 1;
  stop.completion_tokens = 3;
  stop.seed = 99;
  stop.timings.time_to_first_token = absl::Milliseconds(20);
  stop.timings.num_blocks = 2;
  engine::Finished length;
  length.index = 1;
  length.reason = engine::FinishReason::kLength;
  length.detail = "kv_capacity";
  length.completion_tokens = 1;
  chunk.finished = {stop, length};
  chunk.terminal = absl::OkStatus();
  return chunk;
}

TEST(ConvertResponses, OneEventPerMessageInStreamOrder) {
  const auto first = ToResponses("r", FirstChunk());
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(first[0].accepted().request_id(), "r");
  EXPECT_EQ(first[0].accepted().prompt_tokens(), 3);
  EXPECT_EQ(first[0].accepted().cached_tokens(), 1);
  EXPECT_EQ(first[0].accepted().queue_ms(), 1.5);
  EXPECT_THAT(first[0].accepted().prompt_token_ids(), ElementsAre(4, 5, 6));
  EXPECT_EQ(first[1].prompt_logprobs().positions_size(), 3);
  EXPECT_FALSE(first[1].prompt_logprobs().positions(0).has_chosen());
  EXPECT_EQ(first[1].prompt_logprobs().positions(1).chosen().token_id(), 5);
  EXPECT_EQ(first[1].prompt_logprobs().positions(1).chosen().rank(), 2);
  EXPECT_EQ(first[2].delta().index(), 0);
  EXPECT_THAT(first[2].delta().token_ids(), ElementsAre(7, 8));
  EXPECT_EQ(first[2].delta().text(), "ab");
  EXPECT_EQ(first[3].delta().index(), 1);

  const auto last = ToResponses("r", LastChunk());
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(last[1].finished().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(last[1].finished().stop_string(), "c");
  EXPECT_EQ(last[1].finished().usage().completion_tokens(), 3);
  EXPECT_EQ(last[1].finished().seed(), 99u);
  EXPECT_EQ(last[1].finished().timings().ttft_ms(), 20);
  EXPECT_EQ(last[1].finished().timings().blocks(), 2);
  EXPECT_EQ(last[2].finished().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(last[2].finished().detail(), "kv_capacity");
  EXPECT_EQ(last[2].finished().stop_reason_case(), v1::Finished::STOP_REASON_NOT_SET);
}

TEST(ConvertResponses, C106_UnaryAnswerIsTheJoinedStream) {
  UnaryAnswer answer;
  answer.Add("r", FirstChunk());
  answer.Add("r", LastChunk());
  const auto& response = answer.response();
  EXPECT_EQ(response.accepted().request_id(), "r");
  EXPECT_EQ(response.prompt_logprobs_size(), 3);
  ASSERT_EQ(response.completions_size(), 2);
  EXPECT_EQ(response.completions(0).index(), 0);
  EXPECT_THAT(response.completions(0).token_ids(), ElementsAre(7, 8, 10));
  EXPECT_EQ(response.completions(0).text(), "abc");
  EXPECT_THAT(response.completions(1).token_ids(), ElementsAre(9));
  const auto last = ToResponses("r", LastChunk());
  EXPECT_TRUE(MessageDifferencer::Equals(response.completions(0).finished(), last[1].finished()));
  EXPECT_TRUE(MessageDifferencer::Equals(response.completions(1).finished(), last[2].finished()));
}

TEST(ConvertResponses, BranchesMayStartInAnyOrder) {
  StreamChunk chunk;
  chunk.deltas = {{.index = 2, .token_ids = {1}, .text = "", .logprobs = {}}};
  UnaryAnswer answer;
  answer.Add("r", chunk);
  ASSERT_EQ(answer.response().completions_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answer.response().completions(i).index(), i);
}

TEST(ConvertResponses, C92_LargeLogprobsAreSplitBelowTheMessageLimit) {
  constexpr int kTokens = 4096;
  StreamChunk chunk;
  engine::Delta delta{.index = 1, .token_ids = {}, .text = "the text", .logprobs = {}};
  for (int i = 0; i < kTokens; ++i) {
    delta.token_ids.push_back(i);
    delta.logprobs.push_back(Position(i, 100));
    chunk.prompt_logprobs.push_back(Position(i, 100));
  }
  chunk.deltas = {delta};

  int next_prompt = 0;
  int next_output = 0;
  std::string text;
  std::size_t total_bytes = 0;
  for (const auto& message : ToResponses("r", chunk)) {
    EXPECT_LT(message.ByteSizeLong(), kMaxSendBytes / 2);
    total_bytes += message.ByteSizeLong();
    if (message.has_prompt_logprobs()) {
      EXPECT_EQ(message.prompt_logprobs().first_position(), next_prompt);
      next_prompt += message.prompt_logprobs().positions_size();
    } else {
      EXPECT_EQ(message.delta().index(), 1);
      ASSERT_EQ(message.delta().token_ids_size(), message.delta().logprobs_size());
      for (int i = 0; i < message.delta().token_ids_size(); ++i, ++next_output) {
        EXPECT_EQ(message.delta().token_ids(i), next_output);
        EXPECT_EQ(message.delta().logprobs(i).chosen().token_id(), next_output);
      }
      text += message.delta().text();
    }
  }
  EXPECT_EQ(next_prompt, kTokens);
  EXPECT_EQ(next_output, kTokens);
  EXPECT_EQ(text, "the text");
  EXPECT_GT(total_bytes, 2 * kMaxSendBytes) << "too small to test anything";
}

TEST(ConvertResponses, C92_UnaryAnswerThatIsTooLargeIsRefusedWithBothNumbers) {
  StreamChunk chunk;
  for (int i = 0; i < 5000; ++i) chunk.prompt_logprobs.push_back(Position(i, 100));
  UnaryAnswer answer;
  answer.Add("r", chunk);
  grpc::ByteBuffer bytes;
  const absl::Status status = PutMessage(answer.response(), &bytes);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(std::to_string(answer.response().ByteSizeLong())));
}

TEST(ConvertStats, EverySumIsKept) {
  engine::EngineStats stats;
  stats.sequence_number = 12;
  stats.blocks = {.capacity = 10,
                  .block_size = 16,
                  .active = 5,
                  .cached = 3,
                  .free = 2,
                  .useful_slots = 70,
                  .logical_blocks = 6,
                  .evictions = 1,
                  .copies_on_write = 2,
                  .allocations = 9,
                  .peak_active = 7};
  stats.requests_received = 21;
  stats.requests_queued = 1;
  stats.requests_running = 2;
  stats.finished_stop = 3;
  stats.finished_length = 4;
  stats.cancelled = 5;
  stats.deadline_exceeded = 1;
  stats.refused = 2;
  stats.failed = 3;
  stats.step_time.sum = 0.5;
  stats.step_time.count = 100;
  stats.scheduler.num_running = 4;
  stats.blocks.leased = 2;
  stats.blocks.sessions = 1;
  stats.blocks.evictions = 9;
  stats.blocks.evictions_leased = 4;
  stats.blocks.dropped_by_reset = 6;
  stats.blocks.leases_expired = 7;
  stats.blocks.leases_displaced = 8;
  stats.scheduler.prefix_hit_tokens = 100;
  stats.scheduler.prefix_hit_tokens_session = 30;
  stats.scheduler.prefix_hit_tokens_in_flight = 20;
  stats.scheduler.prefix_misses.evicted = 11;
  stats.scheduler.waiting_because.turn = 3;
  stats.scheduler.in_flight_waits = 12;
  stats.scheduler.in_flight_timeouts = 13;
  stats.scheduler.prefill_cap = 14;
  stats.time = absl::UnixEpoch() + absl::Seconds(4);
  stats.scheduler.oldest_waiting_arrival = absl::UnixEpoch() + absl::Seconds(1);
  const v1::Stats out = ToProto(stats, absl::Seconds(7));
  EXPECT_EQ(out.sequence_number(), 12u);
  EXPECT_EQ(out.uptime_seconds(), 7);
  const auto& blocks = out.blocks();
  EXPECT_EQ(blocks.active() + blocks.cached() + blocks.free(), blocks.capacity());
  EXPECT_EQ(blocks.useful_slots(), 70);
  EXPECT_EQ(blocks.peak_active(), 7);
  const auto& r = out.requests();
  EXPECT_EQ(r.received(), r.queued() + r.running() + r.finished_stop() + r.finished_length() +
                              r.cancelled() + r.deadline_exceeded() + r.refused() + r.failed());
  EXPECT_EQ(blocks.leased(), 2);
  EXPECT_EQ(blocks.sessions(), 1);
  EXPECT_EQ(blocks.evictions_by_reason().at("cached"), 5);
  EXPECT_EQ(blocks.evictions_by_reason().at("leased"), 4);
  EXPECT_EQ(blocks.evictions_by_reason().at("reset"), 6);
  EXPECT_EQ(blocks.leases_expired(), 7);
  EXPECT_EQ(blocks.leases_displaced(), 8);
  EXPECT_EQ(out.hit_tokens_by_source().at("first_time"), 50);
  EXPECT_EQ(out.hit_tokens_by_source().at("session"), 30);
  EXPECT_EQ(out.hit_tokens_by_source().at("in_flight"), 20);
  EXPECT_EQ(out.hit_tokens_by_source().at("fork"), 0);
  EXPECT_EQ(out.miss_tokens_by_reason().at("evicted"), 11);
  EXPECT_EQ(out.waiting_by_reason().at("turn"), 3);
  EXPECT_EQ(out.in_flight_waits(), 12);
  EXPECT_EQ(out.in_flight_timeouts(), 13);
  EXPECT_EQ(out.prefill_cap_tokens(), 14);
  EXPECT_EQ(out.oldest_waiting_seconds(), 3);
  EXPECT_EQ(out.mean_step_ms(), 5);
  EXPECT_EQ(out.running_sequences(), 4);
  EXPECT_TRUE(out.healthy());
}

TEST(ConvertStats, BlockMapShowsTables) {
  engine::BlockMap map;
  map.states = {engine::BlockMap::State::kFree, engine::BlockMap::State::kCached,
                engine::BlockMap::State::kActive};
  map.owners = {0, 0, 2};
  map.sequences = {{.request_id = "r",
                    .index = 1,
                    .num_tokens = 20,
                    .num_computed_tokens = 19,
                    .blocks = {BlockId(2), BlockId(0)}}};
  map.sessions = {{.session_id = "tale",
                   .num_tokens = 33,
                   .expires_in = absl::Milliseconds(1500),
                   .blocks = {BlockId(1)}}};
  const auto out = ToProto(map);
  EXPECT_THAT(out.states(),
              ElementsAre(v1::BLOCK_STATE_FREE, v1::BLOCK_STATE_CACHED, v1::BLOCK_STATE_ACTIVE));
  EXPECT_THAT(out.owners(), ElementsAre(0, 0, 2));
  ASSERT_EQ(out.sequences_size(), 1);
  EXPECT_EQ(out.sequences(0).request_id(), "r");
  EXPECT_EQ(out.sequences(0).num_computed_tokens(), 19);
  EXPECT_THAT(out.sequences(0).block_ids(), ElementsAre(2, 0));
  ASSERT_EQ(out.sessions_size(), 1);
  EXPECT_EQ(out.sessions(0).session_id(), "tale");
  EXPECT_EQ(out.sessions(0).num_tokens(), 33);
  EXPECT_EQ(out.sessions(0).expires_in_seconds(), 1.5);
  EXPECT_THAT(out.sessions(0).block_ids(), ElementsAre(1));
}

TEST(ConvertKvEvent, EachKindKeepsWhatItSays) {
  using block_manager::KvEvent;
  KvEvent event;
  event.kind = KvEvent::Kind::kStored;
  event.block_hash = ~0ULL;
  event.tokens = {5, 6};
  EXPECT_FALSE(ToProto(event).stored().has_parent_block_hash());
  event.parent_hash = 0;
  const v1::KvEvent stored = ToProto(event);
  EXPECT_EQ(stored.stored().block_hash(), ~0ULL);
  EXPECT_TRUE(stored.stored().has_parent_block_hash());
  EXPECT_EQ(stored.stored().parent_block_hash(), 0u);
  EXPECT_THAT(stored.stored().token_ids(), ElementsAre(5, 6));
  EXPECT_FALSE(stored.stored().salted());
  event.salted = true;
  EXPECT_TRUE(ToProto(event).stored().salted());
  event.kind = KvEvent::Kind::kRemoved;
  EXPECT_EQ(ToProto(event).removed().block_hash(), ~0ULL);
  event.kind = KvEvent::Kind::kCleared;
  EXPECT_TRUE(ToProto(event).has_cleared());
}

}  // namespace
}  // namespace quire::server
