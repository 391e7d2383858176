// Everything at once, at random, on a pool that is too small: whatever happens, each request ends
// with one status, the blocks come back, and what was sent is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/philox.h"
#include "engine/engine.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {
namespace {

using fakes::Answer;
using Ids = std::vector<TokenId>;

// Random numbers of one test thread, all from one seed.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint32_t thread) : seed_(seed), thread_(thread) {}
  // In [0, below).
  std::size_t Roll(std::size_t below) {
    return static_cast<std::size_t>(PhiloxUniform(seed_, thread_, count_++) *
                                    static_cast<double>(below));
  }
  bool OneIn(std::size_t n) { return Roll(n) == 0; }

 private:
  std::uint64_t seed_;
  std::uint32_t thread_;
  std::uint64_t count_ = 0;
};

struct Sent {
  Ids prompt;
  std::int32_t max_tokens = 0;
  std::int32_t branches = 1;
  bool greedy = true;
  std::shared_ptr<TokenStream> stream;
};

Sent SendOne(Harness& harness, Dice& dice) {
  Sent sent;
  // A few shared prefixes, so that the cache has work.
  sent.prompt = Prompt(1 + dice.Roll(120), dice.Roll(4));
  for (const TokenId id : Prompt(dice.Roll(40), 100 + dice.Roll(1000))) sent.prompt.push_back(id);
  sent.max_tokens = static_cast<std::int32_t>(1 + dice.Roll(60));
  GenerationRequest request = Greedy(sent.prompt, sent.max_tokens);
  if (dice.OneIn(4)) {
    sent.greedy = false;
    sent.branches = static_cast<std::int32_t>(1 + dice.Roll(4));
    request = Sampled(sent.prompt, sent.max_tokens, dice.Roll(1000));
    request.sampling.n = sent.branches;
  }
  if (dice.OneIn(8)) {
    const Ids ascii(sent.prompt.size(), 'a' + static_cast<TokenId>(dice.Roll(26)));
    sent.prompt = ascii;
    request.prompt = TextPrompt{.text = std::string(ascii.begin(), ascii.end())};
  }
  if (dice.OneIn(8)) request.sampling.prompt_logprobs = 1;
  if (dice.OneIn(6)) {
    request.deadline = harness.clock.Now() + absl::Milliseconds(1 + dice.Roll(100));
  }
  request.priority = static_cast<std::int32_t>(dice.Roll(3));
  sent.stream = harness.Submit(std::move(request));
  return sent;
}

void ExpectRight(const Harness& harness, const Sent& sent, const Answer& answer) {
  ASSERT_TRUE(answer.terminal.has_value());
  const absl::StatusCode code = answer.terminal->code();
  EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kCancelled ||
              code == absl::StatusCode::kDeadlineExceeded)
      << *answer.terminal;
  if (code == absl::StatusCode::kOk) {
    EXPECT_EQ(answer.branches.size(), static_cast<std::size_t>(sent.branches));
  }
  for (const auto& [index, branch] : answer.branches) {
    if (code == absl::StatusCode::kOk && branch.finished->detail.empty()) {
      EXPECT_EQ(branch.token_ids.size(), static_cast<std::size_t>(sent.max_tokens));
    }
    if (!sent.greedy) continue;
    // Also of a request that was cut short, every token that was sent is right.
    EXPECT_EQ(branch.token_ids,
              harness.Expected(sent.prompt, static_cast<std::int32_t>(branch.token_ids.size())));
  }
}

class EngineRandom : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, EngineRandom, ::testing::Range<std::uint64_t>(1, 9));

TEST_P(EngineRandom, EveryRequestEndsOnceAndRight) {
  const std::uint64_t seed = GetParam();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Dice dice(seed, 99);
  HarnessOptions options;
  options.model.num_blocks = static_cast<std::int64_t>(14 + dice.Roll(20));
  options.engine.scheduler.max_num_seqs = static_cast<std::int32_t>(4 + dice.Roll(12));
  options.engine.scheduler.max_num_batched_tokens = static_cast<std::int32_t>(32 + dice.Roll(100));
  options.engine.scheduler.max_prefill_tokens = static_cast<std::int32_t>(1 + dice.Roll(64));
  options.engine.scheduler.policy =
      dice.OneIn(2) ? scheduler::Policy::kPriority : scheduler::Policy::kFcfs;
  options.engine.enable_prefix_caching = !dice.OneIn(4);
  options.engine.scheduler.max_model_len = 512;
  Harness harness(options);
  harness.model->SetOnStep([&harness](const kernels::BatchView&) {
    harness.clock.Advance(absl::Milliseconds(1));
    return absl::OkStatus();
  });
  const Ids probe = harness.Run(Greedy(Prompt(30, 4242), 12)).branches.at(0).token_ids;
  EXPECT_EQ(probe, harness.Expected(Prompt(30, 4242), 12));

  std::vector<std::vector<Sent>> sent(2);
  std::vector<std::thread> clients;
  for (std::uint32_t t = 0; t < sent.size(); ++t) {
    clients.emplace_back([&, t] {
      Dice own(seed, t);
      for (int i = 0; i < 130; ++i) {
        sent[t].push_back(SendOne(harness, own));
        if (own.OneIn(3)) {
          const Sent& victim = sent[t][own.Roll(sent[t].size())];
          harness.engine->Abort(victim.stream, absl::CancelledError(""));
        }
        if (own.OneIn(40)) (void)harness.engine->ResetPrefixCache(absl::Minutes(1));
        if (own.OneIn(40)) {
          EXPECT_TRUE(harness.engine->GetBlockMap(absl::Minutes(1)).ok());
        }
        ExpectConsistent(*harness.engine->stats());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (const std::vector<Sent>& of_client : sent) {
    for (const Sent& one : of_client) ExpectRight(harness, one, harness.Wait(one.stream));
  }
  EXPECT_EQ(harness.Run(Greedy(Prompt(30, 4242), 12)).branches.at(0).token_ids, probe);
  const auto stats = harness.ExpectIdle();
  EXPECT_EQ(stats->requests_received, 262);
  EXPECT_EQ(stats->scheduler.no_progress_failures, 0);
  EXPECT_TRUE(stats->healthy);
}

}  // namespace
}  // namespace quire::engine
