#include "simulator/paged_system.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace quire::simulator {

PagedSystem::PagedSystem(const block_manager::BlockManagerOptions& blocks,
                         const scheduler::SchedulerOptions& options)
    : max_model_len_(options.max_model_len), blocks_(blocks), scheduler_(options, &blocks_) {}

absl::Status PagedSystem::CheckFits(const Request& request) const {
  if (request.total_len() > max_model_len_) {
    return InvalidArgument("prompt and answer of {} tokens exceed max_model_len of {}",
                           request.total_len(), max_model_len_);
  }
  return scheduler_.CheckFits(request.prompt_len(), request.num_branches);
}

void PagedSystem::Add(std::int32_t index, const Request& request, std::vector<TokenId> prompt,
                      absl::Time now) {
  const SequenceId first = sequences_.Add(index, request);
  scheduler::NewSequence sequence{.id = first,
                                  .prompt = std::move(prompt),
                                  .max_total_tokens = request.total_len(),
                                  .arrival = now};
  if (!request.session.empty()) sequence.session = {.id = request.session, .salt = {}};
  for (std::int32_t branch = 1; branch < request.num_branches; ++branch) {
    sequence.forks.emplace_back(first.value() + static_cast<std::uint64_t>(branch));
  }
  scheduler_.Add(std::move(sequence));
}

StepWork PagedSystem::BeginStep(absl::Time now, std::vector<Happening>* happenings) {
  QUIRE_CHECK(plan_ == nullptr) << "BeginStep before EndStep";
  const scheduler::StepPlan& plan = scheduler_.Schedule(now);
  for (const scheduler::Termination& termination : plan.terminated) {
    happenings->push_back(
        {.kind = Happening::Kind::kEndedEarly, .request = sequences_.at(termination.id).index});
  }
  for (const scheduler::Admission& admission : plan.admitted) {
    happenings->push_back({.kind = Happening::Kind::kAdmitted,
                           .request = sequences_.at(admission.id).index,
                           .num_cached_tokens = admission.num_cached_tokens});
  }
  StepWork work;
  for (const scheduler::ScheduledSequence& sequence : plan.scheduled) {
    work.Add(sequence.first_token, sequence.num_tokens);
  }
  if (!work.empty()) plan_ = &plan;
  return work;
}

MemoryUse PagedSystem::memory() const {
  const block_manager::BlockStats stats = blocks_.stats();
  return {.capacity = stats.capacity * stats.block_size,
          .reserved = stats.active * stats.block_size,
          .useful = static_cast<double>(stats.useful_slots) +
                    (plan_ == nullptr ? 0 : plan_->num_tokens) / 2.0,
          .unshared = stats.logical_blocks * stats.block_size};
}

void PagedSystem::EndStep(absl::Duration took, std::vector<Happening>* happenings) {
  QUIRE_CHECK(plan_ != nullptr) << "EndStep before BeginStep";
  result_.sequences.clear();
  for (const scheduler::ScheduledSequence& sequence : plan_->scheduled) {
    if (!sequence.samples) continue;
    Answer(sequence.id, happenings);
    for (const SequenceId fork : sequence.forks) Answer(fork, happenings);
  }
  plan_ = nullptr;
  scheduler_.Apply(result_);
  scheduler_.StepTook(took);
}

void PagedSystem::Answer(SequenceId id, std::vector<Happening>* happenings) {
  const ScriptedSequences::Output output = sequences_.Next(id);
  const std::int32_t request = sequences_.at(id).index;
  result_.sequences.push_back(
      {.id = id, .new_tokens = {output.token}, .finished = output.finished});
  happenings->push_back({.kind = Happening::Kind::kToken, .request = request});
  if (output.finished) {
    happenings->push_back({.kind = Happening::Kind::kFinished, .request = request});
  }
}

Counters PagedSystem::counters() const {
  const scheduler::SchedulerStats stats = scheduler_.stats();
  return {.preemptions = stats.num_preemptions,
          .prefill_tokens = stats.scheduled_prefill_tokens,
          .decode_tokens = stats.scheduled_decode_tokens,
          .recomputed_tokens = stats.recomputed_tokens,
          .prefix_query_tokens = stats.prefix_query_tokens,
          .prefix_hit_tokens = stats.prefix_hit_tokens,
          .hit_tokens_after_preemption = stats.prefix_hit_tokens_after_preemption,
          .copies_on_write = blocks_.stats().copies_on_write};
}

}  // namespace quire::simulator
