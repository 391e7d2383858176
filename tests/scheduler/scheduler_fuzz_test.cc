// Random workloads through the real scheduler and block manager, on the scripted engine: every
// sequence ends exactly once, with the tokens it would have had alone, and the pool ends empty.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/fakes/scripted_engine.h"

namespace quire::scheduler {
namespace {

using block_manager::BlockManager;
using block_manager::BlockManagerOptions;
using block_manager::CacheSalt;
using block_manager::PrefixKey;

std::uint64_t AlwaysCollides(const PrefixKey&, std::uint64_t) { return 7; }

// How often the workloads reached what they are there to reach.
struct Coverage {
  std::int64_t preemptions = 0, recomputed_tokens = 0, copies_on_write = 0, evictions = 0;
  std::int64_t hit_tokens = 0, hit_tokens_after_preemption = 0, hit_tokens_in_flight = 0;
  std::int64_t in_flight_timeouts = 0, preemptions_for_urgent = 0, hit_tokens_session = 0;
  std::int64_t preemptions_with_window = 0;
  std::map<TerminalReason, int> terminations;
};

class Fuzz {
 public:
  explicit Fuzz(std::uint32_t seed) : random_(seed) {
    block_options_.block_size = 1 << Uniform(0, 4);
    block_options_.num_blocks = Uniform(2, 24);
    block_options_.enable_prefix_caching = Uniform(0, 3) > 0;
    if (Uniform(0, 2) == 0) block_options_.hash = AlwaysCollides;
    block_options_.session_share = 0.25 * Uniform(0, 4);
    block_options_.session_ttl = absl::Milliseconds(Uniform(1, 1000));
    options_.max_num_seqs = Uniform(1, 8);
    options_.max_num_batched_tokens = options_.max_num_seqs + Uniform(0, 40);
    options_.max_prefill_tokens = Uniform(1, 40);
    options_.max_model_len = Uniform(2, 200);
    options_.policy = Uniform(0, 1) == 0 ? Policy::kFcfs : Policy::kPriority;
    options_.watermark = Uniform(0, 3) * 0.1;
    options_.max_overtakes = Uniform(0, 4);
    options_.max_in_flight_steps = Uniform(0, 6);
    if (Uniform(0, 2) == 0) options_.client_quantum = Uniform(1, 40);
    if (Uniform(0, 2) == 0) options_.sliding_window = Uniform(1, 40);
    if (Uniform(0, 2) == 0) options_.target_itl = absl::Milliseconds(Uniform(1, 20));
    EXPECT_TRUE(options_.Validate().ok());
    EXPECT_TRUE(block_options_.Validate().ok());
    blocks_.emplace(block_options_);
    scheduler_.emplace(options_, &*blocks_);
    engine_.emplace(block_options_.num_blocks, block_options_.block_size, options_.sliding_window);
  }

  void Run(Coverage* coverage) {
    const int num_requests = Uniform(1, 40);
    int added = 0;
    absl::Time now = absl::UnixEpoch();
    for (int step = 0; added < num_requests || scheduler_->has_work(); ++step) {
      ASSERT_LT(step, 200'000) << "no end in sight";
      while (added < num_requests && Uniform(0, 2) == 0) {
        AddRequest(now);
        ++added;
      }
      if (Uniform(0, 19) == 0 && !live_.empty()) CancelOne();
      now += absl::Milliseconds(1);
      const StepPlan& plan = scheduler_->Schedule(now);
      for (const Termination& t : plan.terminated) {
        ASSERT_NE(t.reason, TerminalReason::kNoProgress);
        ++coverage->terminations[t.reason];
        if (t.reason == TerminalReason::kKvCapacity) {
          ASSERT_GE(live_.at(t.id).prompt.size() + engine_->output(t.id).size(),
                    block_options_.num_blocks * block_options_.block_size);
        }
        End(t.id);
      }
      for (const Admission& a : plan.admitted) {
        admitted_tokens_ += static_cast<std::int64_t>(live_.at(a.id).prompt.size());
      }
      Note(plan);
      ASSERT_LE(plan.num_tokens, options_.max_num_batched_tokens);
      ASSERT_EQ(plan.empty(), !scheduler_->has_work());
      const SchedulerStats stats = scheduler_->stats();
      ASSERT_EQ(stats.waiting_because.total(), stats.num_waiting);
      ASSERT_EQ(stats.oldest_waiting_arrival == absl::InfiniteFuture(), stats.num_waiting == 0);
      if (Uniform(0, 49) == 0) {
        for (const SequenceId id : scheduler_->Abandon()) End(id);
      } else {
        const StepResult result = engine_->Run(plan);
        scheduler_->Apply(result);
        scheduler_->StepTook(absl::Milliseconds(Uniform(0, 40)));
        for (const SequenceResult& r : result.sequences) {
          if (r.finished) End(r.id);
        }
      }
      scheduler_->CheckInvariants();
    }
    EXPECT_TRUE(live_.empty());
    coverage->preemptions += scheduler_->stats().num_preemptions;
    coverage->recomputed_tokens += scheduler_->stats().recomputed_tokens;
    coverage->hit_tokens += scheduler_->stats().prefix_hit_tokens;
    coverage->hit_tokens_after_preemption += scheduler_->stats().prefix_hit_tokens_after_preemption;
    coverage->hit_tokens_in_flight += scheduler_->stats().prefix_hit_tokens_in_flight;
    coverage->in_flight_timeouts += scheduler_->stats().in_flight_timeouts;
    coverage->hit_tokens_session += scheduler_->stats().prefix_hit_tokens_session;
    if (options_.sliding_window > 0) {
      coverage->preemptions_with_window += scheduler_->stats().num_preemptions;
    }
    ExpectEveryPromptTokenIsAHitOrAMiss();
    coverage->preemptions_for_urgent += scheduler_->stats().num_preemptions_for_urgent;
    coverage->copies_on_write += blocks_->stats().copies_on_write;
    coverage->evictions += blocks_->stats().evictions;
    EXPECT_EQ(blocks_->stats().active, 0);
    EXPECT_EQ(blocks_->stats().useful_slots, 0);
    EXPECT_EQ(blocks_->stats().logical_blocks, 0);
  }

  const std::vector<std::int64_t>& trace() const { return trace_; }

 private:
  struct Live {
    std::vector<TokenId> prompt;
    std::int32_t branch = 0;
    std::vector<SequenceId> all_branches;
  };

  // For comparing two runs.
  void Note(const StepPlan& plan) {
    for (const ScheduledSequence& s : plan.scheduled) {
      trace_.insert(trace_.end(), {static_cast<std::int64_t>(s.id.value()), s.first_token,
                                   s.num_tokens, s.first_position});
      for (const BlockId block : s.block_table) trace_.push_back(block.value());
    }
    for (const SequenceId id : plan.preempted) {
      trace_.push_back(-static_cast<std::int64_t>(id.value()));
    }
  }

  int Uniform(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  void AddRequest(absl::Time now) {
    NewSequence request;
    const int max_prompt =
        static_cast<int>(std::min<std::int64_t>(
            options_.max_model_len, block_options_.num_blocks * block_options_.block_size)) -
        1;
    const int length = Uniform(1, std::max(1, Uniform(1, max_prompt)));
    ASSERT_TRUE(scheduler_->CheckFits(length).ok());
    // Prompts from a small alphabet share prefixes.
    const int alphabet = Uniform(1, 2);
    for (int i = 0; i < length; ++i) request.prompt.push_back(Uniform(1, alphabet));
    const int branches = Uniform(0, 3) == 0 ? Uniform(1, options_.max_num_seqs) : 1;
    const int room = options_.max_model_len - length;
    std::vector<SequenceId> ids;
    for (int branch = 0; branch < branches; ++branch) {
      const SequenceId id{next_id_++};
      ids.push_back(id);
      engine_->SetJob(id, {.branch = branch, .num_output_tokens = Uniform(1, std::min(room, 40))});
    }
    for (int branch = 0; branch < branches; ++branch) {
      live_[ids[branch]] = {request.prompt, branch, ids};
    }
    request.id = ids[0];
    request.forks.assign(ids.begin() + 1, ids.end());
    request.max_total_tokens = options_.max_model_len;
    request.priority = Uniform(0, 2);
    request.arrival = now;
    if (Uniform(0, 5) == 0) request.deadline = now + absl::Milliseconds(Uniform(0, 60));
    request.salt = CacheSalt::ForRequest(Uniform(0, 3) == 0 ? "salt" : "");
    request.bypass_prefix_cache = Uniform(0, 7) == 0;
    if (Uniform(0, 1) == 0) {
      request.session = {.id = std::string(1, static_cast<char>('s' + Uniform(0, 2))),
                         .salt = request.salt};
    }
    if (Uniform(0, 7) == 0) request.reserve_tokens = Uniform(1, max_prompt);
    request.client_id = std::string(1, static_cast<char>('a' + Uniform(0, 2)));
    scheduler_->Add(std::move(request));
  }

  void CancelOne() {
    auto victim = std::next(live_.begin(), Uniform(0, static_cast<int>(live_.size()) - 1));
    const SequenceId id = victim->first;
    const std::vector<SequenceId> ids = victim->second.all_branches;
    if (Uniform(0, 1) == 0) {
      for (const SequenceId branch : ids) {
        scheduler_->Cancel(branch);
        if (live_.contains(branch)) End(branch);
      }
    } else if (id != ids[0]) {
      scheduler_->Cancel(id);
      End(id);
    }
  }

  void ExpectEveryPromptTokenIsAHitOrAMiss() {
    const SchedulerStats stats = scheduler_->stats();
    EXPECT_EQ(stats.prefix_hit_tokens + stats.prefix_misses.total(), admitted_tokens_);
    EXPECT_LE(stats.prefix_hit_tokens_session + stats.prefix_hit_tokens_in_flight,
              stats.prefix_hit_tokens);
  }

  // What it has yielded so far is what it would have yielded alone.
  void End(SequenceId id) {
    ASSERT_TRUE(live_.contains(id)) << id.value() << " ended twice";
    const std::vector<TokenId>& output = engine_->output(id);
    EXPECT_EQ(output, fakes::ExpectedOutput(live_.at(id).prompt, live_.at(id).branch,
                                            static_cast<std::int32_t>(output.size())));
    live_.erase(id);
  }

  std::mt19937 random_;
  BlockManagerOptions block_options_;
  SchedulerOptions options_;
  std::optional<BlockManager> blocks_;
  std::optional<Scheduler> scheduler_;
  std::optional<fakes::ScriptedEngine> engine_;
  std::map<SequenceId, Live> live_;
  std::uint64_t next_id_ = 1;
  std::int64_t admitted_tokens_ = 0;
  std::vector<std::int64_t> trace_;
};

TEST(SchedulerFuzz, C19_EverySequenceEndsOnceWithItsSoloTokens) {
  Coverage coverage;
  for (std::uint32_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Fuzz(seed).Run(&coverage);
    if (HasFailure()) return;
  }
  EXPECT_GT(coverage.preemptions, 1000);
  EXPECT_GT(coverage.recomputed_tokens, 1000);
  EXPECT_GT(coverage.copies_on_write, 1000);
  EXPECT_GT(coverage.evictions, 1000);
  EXPECT_GT(coverage.hit_tokens, 1000);
  EXPECT_GT(coverage.hit_tokens_after_preemption, 1000);
  EXPECT_GT(coverage.hit_tokens_in_flight, 1000);
  EXPECT_GT(coverage.in_flight_timeouts, 0);
  EXPECT_GT(coverage.preemptions_for_urgent, 100);
  EXPECT_GT(coverage.preemptions_with_window, 100);
  EXPECT_GT(coverage.hit_tokens_session, 100);
  EXPECT_GT(coverage.terminations[TerminalReason::kKvCapacity], 100);
  EXPECT_GT(coverage.terminations[TerminalReason::kDeadlineExceeded], 100);
}

TEST(SchedulerFuzz, SchedulingIsAFunctionOfWhatItWasTold) {
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    Coverage coverage;
    Fuzz first(seed), second(seed);
    first.Run(&coverage);
    second.Run(&coverage);
    EXPECT_GT(first.trace().size(), 4u);
    EXPECT_EQ(first.trace(), second.trace()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quire::scheduler
