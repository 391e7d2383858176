#include "scheduler/step_planner.h"

#include <algorithm>

#include "base/check.h"

namespace quire::scheduler {

using block_manager::Verdict;

StepPlanner::StepPlanner(const SchedulerOptions& options, block_manager::BlockManager* blocks,
                         SequenceStore* store, SchedulerStats* stats)
    : options_(options),
      window_(options.window()),
      blocks_(blocks),
      store_(store),
      stats_(stats),
      admission_(options, blocks, store, stats),
      demand_(blocks),
      preemptions_(window_, blocks),
      may_outgrow_(blocks->BlocksForTokens(options.max_model_len, window_) > blocks->capacity()),
      prefill_cap_(options.target_itl, blocks->block_size(), options.max_prefill_tokens) {}

void StepPlanner::Plan(absl::Time now, StepPlan* plan) {
  plan_ = plan;
  plan->scheduled.clear();
  plan->copies.clear();
  plan->admitted.clear();
  plan->preempted.clear();
  plan->terminated.clear();
  plan->num_tokens = 0;
  scheduled_.clear();

  EndExpired(now);
  PlanOnce(now);
  while (plan->empty() && !store_->empty()) {
    ++stats_->no_progress_failures;
    Terminate(store_->MostSenior(), TerminalReason::kNoProgress);
    PlanOnce(now);
  }
  if (!plan->empty()) ++stats_->num_steps;
}

void StepPlanner::PlanOnce(absl::Time now) {
  token_budget_ = options_.max_num_batched_tokens;
  const std::int64_t preemptions_before = stats_->num_preemptions;
  EndOutgrown(now);
  MakeRoomForRunning();
  MakeRoomForUrgent();
  ScheduleDecodes();
  num_decode_tokens_ = plan_->num_tokens;
  prefill_budget_ = plan_->empty() ? token_budget_ : std::min(token_budget_, prefill_cap_.tokens());
  SchedulePrefills();
  if (stats_->num_preemptions == preemptions_before) {
    AdmitWaiting();
  } else {
    // Whoever was preempted just now would only come back to be preempted again.
    stats_->waiting_because = {.blocks = store_->waiting().num_branches()};
  }
}

void StepPlanner::StepTook(absl::Duration duration) {
  if (num_decode_tokens_ == 0) return;
  prefill_cap_.StepTook(duration, plan_->num_tokens - num_decode_tokens_);
}

void StepPlanner::EndExpired(absl::Time now) {
  while (store_->has_deadlines() && store_->next_deadline() <= now) {
    Terminate(store_->NextToExpire(), TerminalReason::kDeadlineExceeded);
  }
}

// Their answers are whole as far as they go, so a session goes on from there.
void StepPlanner::EndOutgrown(absl::Time now) {
  if (!may_outgrow_) return;
  outgrown_.clear();
  for (Sequence* sequence : store_->running()) {
    if (blocks_->BlocksForTokens(sequence->num_tokens(), window_) > blocks_->capacity()) {
      outgrown_.push_back(sequence);
    }
  }
  for (Sequence* sequence : outgrown_) {
    if (sequence->session.has_value()) {
      blocks_->Lease(*sequence->session, &sequence->blocks, sequence->tokens, now);
    }
    Terminate(sequence, TerminalReason::kKvCapacity);
  }
}

// Mostly there is room whatever they ask for, as a token takes one block at most; then nobody's
// demand is counted.
//
// If there is no victim left, everybody but the most senior one is resuming; it then waits, without
// its work being lost, for them to yield a token.
void StepPlanner::MakeRoomForRunning() {
  const auto num_running = static_cast<std::int64_t>(store_->running().size());
  if (window_.tokens == 0 && num_running * most_yielded_ <= blocks_->num_available()) return;
  while (true) {
    demand_.Clear();
    for (const Sequence* sequence : store_->running()) {
      if (sequence->AsksForBlocks(window_)) {
        demand_.Add(sequence->blocks, sequence->NextEnd(window_));
      }
    }
    if (demand_.num_blocks() <= blocks_->num_available()) return;
    Sequence* const victim = ChooseVictim(store_->running());
    if (victim == nullptr) return;
    Preempt(victim);
  }
}

// At most one waiting sequence per step preempts others: the first one, if nothing else helps it.
void StepPlanner::MakeRoomForUrgent() {
  if (options_.policy != Policy::kPriority || store_->waiting().empty()) return;
  const Sequence& urgent = **store_->waiting().begin();
  if (admission_.AwaitsPrefix(urgent)) return;
  if (!preemptions_.Find(urgent, {.running = store_->running(),
                                  .free_slots = options_.max_num_seqs - store_->running_slots(),
                                  .watermark_blocks = admission_.watermark_blocks()})) {
    return;
  }
  for (Sequence* victim : preemptions_.victims()) {
    Preempt(victim);
    ++stats_->num_preemptions_for_urgent;
  }
  ReportAdmission(admission_.AdmitHead(preemptions_.keep_available()));
}

inline void StepPlanner::Schedule(Sequence* sequence, std::int32_t num_tokens) {
  const block_manager::BlockTable& table = sequence->blocks.table();
  const std::int32_t first_token = sequence->num_computed_tokens();
  const std::int32_t end = first_token + num_tokens;
  const bool samples = end == sequence->num_tokens();
  std::span<const SequenceId> forks;
  if (samples && !sequence->decoding) forks = sequence->pending_forks;
  const auto num_blocks = static_cast<std::size_t>(table.index_of(end - 1) + 1);
  plan_->scheduled.push_back({
      .id = sequence->id,
      .first_token = first_token,
      .num_tokens = num_tokens,
      .samples = samples,
      .first_position = table.first_position(),
      .tokens = sequence->tokens,
      .block_table = table.blocks().first(num_blocks),
      .forks = forks,
  });
  plan_->num_tokens += num_tokens;
  token_budget_ -= num_tokens;
  scheduled_.push_back(sequence);
}

void StepPlanner::ScheduleDecodes() {
  prefills_.clear();
  for (Sequence* sequence : store_->running()) {
    if (!sequence->decoding) prefills_.push_back(sequence);
    if (!sequence->decoding || token_budget_ == 0) continue;
    const std::int32_t num_tokens = std::min(sequence->num_uncomputed_tokens(), token_budget_);
    const Verdict verdict = blocks_->Extend(
        &sequence->blocks, sequence->num_computed_tokens() + num_tokens, &plan_->copies);
    if (verdict != Verdict::kNow) continue;
    Schedule(sequence, num_tokens);
    stats_->scheduled_decode_tokens += num_tokens;
  }
}

void StepPlanner::SchedulePrefills() {
  std::ranges::sort(prefills_,
                    [](const Sequence* a, const Sequence* b) { return GoesBefore(*a, *b); });
  for (Sequence* sequence : prefills_) {
    if (prefill_budget_ == 0) return;
    ScheduleChunk(sequence);
  }
}

void StepPlanner::AdmitWaiting() {
  admission_.BeginStep(prefills_);
  while (prefill_budget_ > 0) {
    Sequence* const sequence = admission_.AdmitNext();
    if (sequence == nullptr) break;
    ReportAdmission(sequence);
    ScheduleChunk(sequence);
  }
  admission_.EndStep();
}

void StepPlanner::ScheduleChunk(Sequence* sequence) {
  const std::int32_t end =
      std::min(sequence->NextEnd(window_), sequence->num_computed_tokens() + prefill_budget_);
  const std::int32_t num_tokens = end - sequence->num_computed_tokens();
  if (window_.tokens > 0 &&
      blocks_->Extend(&sequence->blocks, end, &plan_->copies) != Verdict::kNow) {
    return;
  }
  const std::int32_t num_recomputed =
      std::clamp(sequence->max_computed_tokens - sequence->num_computed_tokens(), 0, num_tokens);
  Schedule(sequence, num_tokens);
  prefill_budget_ -= num_tokens;
  stats_->scheduled_prefill_tokens += num_tokens;
  stats_->recomputed_tokens += num_recomputed;
}

void StepPlanner::ReportAdmission(Sequence* sequence) {
  if (sequence->was_admitted) return;
  sequence->was_admitted = true;
  plan_->admitted.push_back({sequence->id, sequence->num_computed_tokens()});
}

void StepPlanner::Preempt(Sequence* sequence) {
  sequence->max_computed_tokens =
      std::max(sequence->max_computed_tokens, sequence->num_computed_tokens());
  blocks_->Release(&sequence->blocks);
  sequence->decoding = false;
  sequence->resuming = true;
  sequence->turn = {};
  sequence->in_flight = {};
  store_->Requeue(sequence);
  plan_->preempted.push_back(sequence->id);
  ++stats_->num_preemptions;
}

void StepPlanner::Terminate(Sequence* sequence, TerminalReason reason) {
  plan_->terminated.push_back({sequence->id, reason});
  for (const SequenceId fork : sequence->pending_forks) {
    plan_->terminated.push_back({fork, reason});
  }
  store_->Remove(sequence);
}

}  // namespace quire::scheduler
