#include "simulator/vllm_policy_system.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace quire::simulator {

using block_manager::Verdict;

VllmPolicySystem::VllmPolicySystem(const block_manager::BlockManagerOptions& blocks,
                                   const VllmPolicyOptions& options)
    : options_(options), blocks_(blocks) {}

absl::Status VllmPolicySystem::CheckFits(const Request& request) const {
  if (request.total_len() > options_.max_model_len) {
    return InvalidArgument("prompt and answer of {} tokens exceed max_model_len of {}",
                           request.total_len(), options_.max_model_len);
  }
  const std::int64_t slots = blocks_.capacity() * blocks_.block_size();
  if (request.prompt_len() + 1 > slots) {
    return InvalidArgument("prompt of {} tokens and one new token exceed the KV pool of {} slots",
                           request.prompt_len(), slots);
  }
  return absl::OkStatus();
}

void VllmPolicySystem::Add(std::int32_t index, const Request& request, std::vector<TokenId> prompt,
                           absl::Time) {
  const SequenceId first = script_.Add(index, request);
  for (std::int32_t branch = 0; branch < request.num_branches; ++branch) {
    waiting_.push_back(std::unique_ptr<Sequence>(
        new Sequence{.id = SequenceId(first.value() + static_cast<std::uint64_t>(branch)),
                     .tokens = prompt,
                     .blocks = blocks_.NewSequence({})}));
  }
}

StepWork VllmPolicySystem::BeginStep(absl::Time, std::vector<Happening>* happenings) {
  StepWork work;
  token_budget_ = options_.max_num_batched_tokens;
  const std::int64_t preemptions_before = counters_.preemptions;
  ScheduleRunning(&work, happenings);
  if (counters_.preemptions == preemptions_before) AdmitWaiting(&work, happenings);
  scheduled_tokens_ = work.num_tokens();
  return work;
}

void VllmPolicySystem::ScheduleRunning(StepWork* work, std::vector<Happening>* happenings) {
  for (std::size_t i = 0; i < running_.size() && token_budget_ > 0; ++i) {
    Sequence* const sequence = running_[i].get();
    const std::int32_t num_tokens = std::min(sequence->num_uncomputed(), token_budget_);
    Verdict verdict;
    while (true) {
      verdict = blocks_.Extend(&sequence->blocks,
                               sequence->blocks.num_computed_tokens() + num_tokens, &copies_);
      if (verdict != Verdict::kNotNow || i + 1 == running_.size()) break;
      PreemptLast();
    }
    if (verdict == Verdict::kNow) {
      Schedule(sequence, work);
    } else if (verdict == Verdict::kNotNow) {
      PreemptLast();  // Itself.
    } else {
      happenings->push_back(
          {.kind = Happening::Kind::kEndedEarly, .request = script_.at(sequence->id).index});
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i--));
    }
  }
}

void VllmPolicySystem::PreemptLast() {
  std::unique_ptr<Sequence> victim = std::move(running_.back());
  running_.pop_back();
  blocks_.Release(&victim->blocks);
  waiting_.push_front(std::move(victim));
  ++counters_.preemptions;
}

void VllmPolicySystem::AdmitWaiting(StepWork* work, std::vector<Happening>* happenings) {
  while (!waiting_.empty() && token_budget_ > 0 && std::ssize(running_) < options_.max_num_seqs) {
    Sequence* const sequence = waiting_.front().get();
    if (blocks_.Admit(&sequence->blocks, sequence->tokens, {}) != Verdict::kNow) return;
    const std::int32_t num_cached = sequence->blocks.num_computed_tokens();
    if (std::exchange(sequence->was_admitted, true)) {
      counters_.hit_tokens_after_preemption += num_cached;
    } else {
      counters_.prefix_query_tokens += std::ssize(sequence->tokens);
      counters_.prefix_hit_tokens += num_cached;
      const ScriptedSequences::Sequence& script = script_.at(sequence->id);
      if (script.branch == 0) {
        happenings->push_back({.kind = Happening::Kind::kAdmitted,
                               .request = script.index,
                               .num_cached_tokens = num_cached});
      }
    }
    Schedule(sequence, work);
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void VllmPolicySystem::Schedule(Sequence* sequence, StepWork* work) {
  const std::int32_t computed = sequence->blocks.num_computed_tokens();
  const std::int32_t num_tokens = std::min(sequence->num_uncomputed(), token_budget_);
  sequence->num_scheduled = num_tokens;
  token_budget_ -= num_tokens;
  work->Add(computed, num_tokens);
  const bool decodes = computed >= script_.at(sequence->id).request->prompt_len() &&
                       computed >= sequence->max_computed_tokens;
  (decodes ? counters_.decode_tokens : counters_.prefill_tokens) += num_tokens;
  counters_.recomputed_tokens +=
      std::clamp(sequence->max_computed_tokens - computed, 0, num_tokens);
}

MemoryUse VllmPolicySystem::memory() const {
  const block_manager::BlockStats stats = blocks_.stats();
  return {.capacity = stats.capacity * stats.block_size,
          .reserved = stats.active * stats.block_size,
          .useful =
              static_cast<double>(stats.useful_slots) + static_cast<double>(scheduled_tokens_) / 2,
          .unshared = stats.logical_blocks * stats.block_size};
}

void VllmPolicySystem::EndStep(absl::Duration /*took*/, std::vector<Happening>* happenings) {
  blocks_.FinishCopies();
  copies_.clear();
  scheduled_tokens_ = 0;
  for (std::unique_ptr<Sequence>& sequence : running_) {
    if (sequence->num_scheduled == 0) continue;
    const std::int32_t computed =
        sequence->blocks.num_computed_tokens() + std::exchange(sequence->num_scheduled, 0);
    blocks_.Commit(&sequence->blocks, sequence->tokens, computed);
    sequence->max_computed_tokens = std::max(sequence->max_computed_tokens, computed);
    if (sequence->num_uncomputed() > 0) continue;
    const ScriptedSequences::Output output = script_.Next(sequence->id);
    const std::int32_t request = script_.at(sequence->id).index;
    happenings->push_back({.kind = Happening::Kind::kToken, .request = request});
    sequence->tokens.push_back(output.token);
    if (!output.finished) continue;
    happenings->push_back({.kind = Happening::Kind::kFinished, .request = request});
    sequence.reset();
  }
  std::erase(running_, nullptr);
}

Counters VllmPolicySystem::counters() const { return counters_; }

}  // namespace quire::simulator
