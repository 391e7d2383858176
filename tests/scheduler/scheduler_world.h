// A scheduler, its block manager and a scripted engine, and a record of all that happened.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"
#include "tests/fakes/scripted_engine.h"

namespace quire::scheduler {

// `count` tokens from `first` on.
inline std::vector<TokenId> TokenRange(int count, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

struct WorldRequest {
  std::vector<TokenId> prompt;
  std::int32_t num_outputs = 1;
  std::int32_t num_branches = 1;
  std::int32_t priority = 0;
  absl::Time deadline = absl::InfiniteFuture();
  std::string_view salt = "";
  bool bypass_prefix_cache = false;
  std::string client_id = "";
};

class World {
 public:
  World(const block_manager::BlockManagerOptions& block_options, const SchedulerOptions& options)
      : blocks_(block_options),
        scheduler_(options, &blocks_),
        engine_(block_options.num_blocks, block_options.block_size) {
    EXPECT_EQ(block_options.Validate(), absl::OkStatus());
    EXPECT_EQ(options.Validate(), absl::OkStatus());
  }

  // Returns the first branch's id; the others' follow it. Every request arrives a bit later.
  SequenceId Add(const WorldRequest& request) {
    now_ += absl::Microseconds(1);
    const SequenceId id{next_id_};
    NewSequence sequence{.id = id, .prompt = request.prompt};
    for (std::int32_t branch = 0; branch < request.num_branches; ++branch) {
      const SequenceId branch_id{next_id_++};
      if (branch > 0) sequence.forks.push_back(branch_id);
      engine_.SetJob(branch_id, {.branch = branch, .num_output_tokens = request.num_outputs});
      branches_[branch_id] = {request.prompt, branch};
    }
    sequence.max_total_tokens =
        static_cast<std::int32_t>(request.prompt.size()) + request.num_outputs;
    sequence.priority = request.priority;
    sequence.arrival = now_;
    sequence.deadline = request.deadline;
    sequence.salt = block_manager::CacheSalt::ForRequest(request.salt);
    sequence.bypass_prefix_cache = request.bypass_prefix_cache;
    sequence.client_id = request.client_id;
    scheduler_.Add(std::move(sequence));
    return id;
  }

  // One step, with the pool and all tokens checked after it.
  void Step() {
    plan_ = scheduler_.Schedule(now_);
    for (const SequenceId id : plan_.preempted) ++preemptions_[id];
    for (const Termination& t : plan_.terminated) terminations_[t.id] = t.reason;
    for (const Admission& a : plan_.admitted) {
      EXPECT_TRUE(cached_tokens_.emplace(a.id, a.num_cached_tokens).second)
          << "sequence " << a.id.value() << " is admitted twice";
    }
    const StepResult result = engine_.Run(plan_);
    scheduler_.Apply(result);
    for (const SequenceResult& sequence : result.sequences) ExpectSoloTokens(sequence.id);
    // Blocks that somebody else holds are in no sequence's table.
    if (held_.empty()) scheduler_.CheckInvariants();
    const block_manager::BlockStats stats = blocks_.stats();
    EXPECT_EQ(stats.active + stats.cached + stats.free, stats.capacity);
  }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) Step();
  }
  void RunToTheEnd() {
    for (int steps = 0; scheduler_.has_work(); ++steps) {
      ASSERT_LT(steps, 100'000) << "no end in sight";
      Step();
    }
    EXPECT_EQ(blocks_.stats().active, 0);
    EXPECT_EQ(blocks_.stats().logical_blocks, 0);
  }

  // Takes blocks out of the pool, as if somebody else used them, and gives all of them back.
  void HoldBlocks(std::int64_t count) {
    const std::vector<TokenId> content =
        TokenRange(static_cast<int>(count) * blocks_.block_size(), 1'000'000 * (1 + ++num_holds_));
    held_.push_back(blocks_.NewSequence({}));
    ASSERT_EQ(blocks_.Admit(&held_.back(), content, {}), block_manager::Verdict::kNow);
  }
  void ReleaseHeldBlocks() { held_.clear(); }

  // Whether the last step computed something of a sequence.
  bool Ran(SequenceId id) const {
    for (const ScheduledSequence& sequence : plan_.scheduled) {
      if (sequence.id == id) return true;
    }
    return false;
  }
  // The longest run of steps in which a sequence yielded no token, between two of its tokens.
  std::int64_t LongestGap(SequenceId id) {
    const std::vector<std::int64_t>& steps = engine_.token_steps(id);
    std::int64_t longest = 0;
    for (std::size_t i = 1; i < steps.size(); ++i) {
      longest = std::max(longest, steps[i] - steps[i - 1] - 1);
    }
    return longest;
  }
  bool Finished(SequenceId id) const { return engine_.finished(id); }

  const std::vector<TokenId>& output(SequenceId id) { return engine_.output(id); }
  int preemptions(SequenceId id) const {
    const auto found = preemptions_.find(id);
    return found == preemptions_.end() ? 0 : found->second;
  }
  const std::map<SequenceId, TerminalReason>& terminations() const { return terminations_; }
  const std::map<SequenceId, std::int32_t>& cached_tokens() const { return cached_tokens_; }
  const StepPlan& plan() const { return plan_; }  // Of the last step; its spans are dangling.
  Scheduler& scheduler() { return scheduler_; }
  block_manager::BlockManager& blocks() { return blocks_; }
  fakes::ScriptedEngine& engine() { return engine_; }
  absl::Time now() const { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  struct Branch {
    std::vector<TokenId> prompt;
    std::int32_t index = 0;
  };

  void ExpectSoloTokens(SequenceId id) {
    const std::vector<TokenId>& output = engine_.output(id);
    const Branch& branch = branches_.at(id);
    EXPECT_EQ(output, fakes::ExpectedOutput(branch.prompt, branch.index,
                                            static_cast<std::int32_t>(output.size())))
        << "sequence " << id.value();
  }

  block_manager::BlockManager blocks_;
  std::vector<block_manager::SequenceBlocks> held_;
  int num_holds_ = 0;
  Scheduler scheduler_;
  fakes::ScriptedEngine engine_;
  absl::Time now_ = absl::UnixEpoch();
  std::uint64_t next_id_ = 1;
  StepPlan plan_;
  std::map<SequenceId, Branch> branches_;
  std::map<SequenceId, int> preemptions_;
  std::map<SequenceId, TerminalReason> terminations_;
  std::map<SequenceId, std::int32_t> cached_tokens_;
};

}  // namespace quire::scheduler
