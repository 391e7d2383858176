// The part of EngineLoop that plans, computes and books a step.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/status.h"
#include "engine/engine_loop.h"
#include "engine/sampling/logprobs.h"

namespace quire::engine {

void EngineLoop::Step() {
  const absl::Time start = around_.clock.Now();
  const scheduler::StepPlan& plan = scheduler_.Schedule(start);
  StatsRecorder::StepUse use{.num_sequences = static_cast<std::int64_t>(plan.scheduled.size()),
                             .blocks = blocks_.stats()};
  BookPlan(plan, start);
  Assemble(plan);
  const absl::Status computed = plan.empty() ? absl::OkStatus() : Compute();
  const absl::Time end = around_.clock.Now();
  if (computed.ok()) {
    BookResults(end);
    scheduler_.Apply(result_);
    if (batch_.num_tokens() > 0) scheduler_.StepTook(end - start);
    failed_steps_ = 0;
  } else {
    FailStep(computed);
  }
  use.num_tokens = batch_.num_tokens();
  if (use.num_tokens > 0) recorder_.StepFinished(end - start, use);
  CancelLeftovers();
#if !defined(NDEBUG) || defined(QUIRE_DEBUG_CHECKS)
  CheckInvariants();
#endif
  if (failed_steps_ >= kMaxFailedSteps) GiveUp(computed);
}

// --- Before ----------------------------------------------------------------------------------

void EngineLoop::BookPlan(const scheduler::StepPlan& plan, absl::Time now) {
  for (const scheduler::Admission& admission : plan.admitted) {
    const RequestTable::Entry entry = requests_.Find(admission.id);
    if (entry && !entry.request->started()) {
      Start(*entry.request, admission.num_cached_tokens, now);
    }
  }
  for (const SequenceId id : plan.preempted) {
    if (const RequestTable::Entry entry = requests_.Find(id)) ++entry.branch->num_preemptions;
  }
  for (const scheduler::Termination& termination : plan.terminated) {
    BookTermination(termination, now);
  }
}

void EngineLoop::Start(ActiveRequest& request, std::int32_t cached_tokens, absl::Time now) {
  request.Start(now, cached_tokens);
  around_.ledger.Start(request.request());
  recorder_.RequestStarted(request.queue_time(), request.prompt_tokens(), cached_tokens);
  MarkDirty(request);
}

void EngineLoop::BookTermination(const scheduler::Termination& termination, absl::Time now) {
  const RequestTable::Entry entry = requests_.Find(termination.id);
  if (!entry || entry.request->ended()) return;
  switch (termination.reason) {
    case scheduler::TerminalReason::kKvCapacity:
      entry.request->FinishBranch(*entry.branch,
                                  {.reason = FinishReason::kLength, .detail = "kv_capacity"}, now);
      MarkDirty(*entry.request);
      EndIfFinished(*entry.request, now);
      return;
    case scheduler::TerminalReason::kDeadlineExceeded:
      End(*entry.request,
          absl::DeadlineExceededError(fmt::format("the deadline passed after {} tokens of output",
                                                  entry.request->generation_tokens())));
      return;
    case scheduler::TerminalReason::kNoProgress:
      spdlog::error("request {} ended by the forward-progress guard; this is a bug",
                    absl::CEscape(entry.request->request().id()));
      End(*entry.request,
          ResourceExhausted("the scheduler could make no progress with this request"));
      return;
  }
}

void EngineLoop::Assemble(const scheduler::StepPlan& plan) {
  batch_.Clear();
  row_owners_.clear();
  batch_.AddCopies(plan.copies);
  for (const scheduler::ScheduledSequence& sequence : plan.scheduled) {
    const RequestTable::Entry entry = requests_.Find(sequence.id);
    QUIRE_CHECK(entry) << "sequence " << sequence.id.value();
    const std::int32_t first_row = batch_.AddSequence(sequence);
    entry.branch->num_blocks = static_cast<std::int32_t>(sequence.block_table.size());
    AddPromptRows(*entry.request, sequence, first_row);
    if (!sequence.samples) continue;
    const std::int32_t last_row = first_row + sequence.num_tokens - 1;
    AddBranchRow(entry, last_row);
    for (const SequenceId id : sequence.forks) {
      const RequestTable::Entry fork = requests_.Find(id);
      QUIRE_CHECK(fork) << "fork " << id.value();
      fork.branch->num_blocks = entry.branch->num_blocks;
      AddBranchRow(fork, last_row);
    }
  }
}

// The row of position p scores the prompt token at p + 1.
void EngineLoop::AddPromptRows(ActiveRequest& request, const scheduler::ScheduledSequence& sequence,
                               std::int32_t first_row) {
  const std::int32_t end =
      std::min(sequence.first_token + sequence.num_tokens + 1, request.prompt_tokens());
  for (std::int32_t position = request.next_prompt_logprob(); position < end; ++position) {
    const std::int32_t row = first_row + position - 1 - sequence.first_token;
    QUIRE_CHECK(row >= first_row) << "prompt position " << position << " was not computed";
    batch_.AddSampleRow(
        row, sampling::PromptLogprobsRow(sequence.tokens[static_cast<std::size_t>(position)],
                                         *request.request().sampling->params().prompt_logprobs,
                                         runner_->vocab_size()));
    row_owners_.push_back({&request, nullptr});
  }
}

void EngineLoop::AddBranchRow(const RequestTable::Entry& entry, std::int32_t row) {
  batch_.AddSampleRow(row, entry.branch->NextRow());
  row_owners_.push_back({entry.request, entry.branch});
}

absl::Status EngineLoop::Compute() {
  try {
    return runner_->Step(batch_.View(), batch_.sample_rows(), batch_.ResetResults());
  } catch (const std::exception& e) {
    return Internal("the model runner threw: {}", e.what());
  }
}

// --- After -----------------------------------------------------------------------------------

void EngineLoop::BookResults(absl::Time now) {
  num_sequence_results_ = 0;
  const std::span<const kernels::SampleResult> results = batch_.results();
  for (std::size_t i = 0; i < row_owners_.size(); ++i) {
    ActiveRequest& request = *row_owners_[i].request;
    if (!request.ended() && !results[i].ok) {
      End(request, InternalError("no token could be chosen: a logit is not a number",
                                 Internal("request {}", request.request().id())));
    }
    if (Branch* branch = row_owners_[i].branch) {
      BookToken(request, *branch, results[i], now);
    } else if (!request.ended()) {
      request.AddPromptLogprob(results[i]);
    }
  }
  result_.sequences.resize(num_sequence_results_);
}

void EngineLoop::BookToken(ActiveRequest& request, Branch& branch,
                           const kernels::SampleResult& result, absl::Time now) {
  scheduler::SequenceResult& booked = NextSequenceResult();
  booked.id = branch.id();
  booked.new_tokens.clear();
  booked.finished = true;
  booked.failed = request.ended();
  if (booked.failed) return;  // Its deadline passed in this plan, or a row of it failed.

  booked.new_tokens.push_back(result.token);
  recorder_.TokenGenerated();
  if (branch.num_output_tokens() > 0) recorder_.TokenGap(now - branch.last_token_time);
  const bool first_of_request = request.generation_tokens() == 0;
  booked.finished = request.AcceptToken(branch, result, now);
  if (first_of_request) {
    recorder_.FirstToken(request.time_to_first_token(), request.prefill_time());
  }
  MarkDirty(request);
  if (booked.finished) EndIfFinished(request, now);
}

scheduler::SequenceResult& EngineLoop::NextSequenceResult() {
  if (num_sequence_results_ == result_.sequences.size()) result_.sequences.emplace_back();
  return result_.sequences[num_sequence_results_++];
}

void EngineLoop::EndIfFinished(ActiveRequest& request, absl::Time now) {
  if (!request.all_finished()) return;
  const std::int64_t generated = request.generation_tokens();
  recorder_.RequestFinished(now - request.request().arrival,
                            generated > 0 ? request.decode_time() : absl::ZeroDuration(),
                            request.prompt_tokens(), generated);
  End(request, absl::OkStatus());
}

void EngineLoop::FailStep(const absl::Status& error) {
  ++failed_steps_;
  const absl::Status status = InternalError("the step failed", error);
  for (const SequenceId id : scheduler_.Abandon()) {
    if (const RequestTable::Entry entry = requests_.Find(id)) End(*entry.request, status);
  }
}

void EngineLoop::CheckInvariants() {
  const absl::Status status = scheduler_.Audit();
  if (status.ok()) return;
  healthy_ = false;
  spdlog::critical("an invariant of the block manager or scheduler is broken: {}",
                   absl::CEscape(status.ToString()));
#if !defined(NDEBUG) || defined(QUIRE_DEBUG_CHECKS)
  QUIRE_CHECK(false) << status.ToString();
#endif
}

}  // namespace quire::engine
