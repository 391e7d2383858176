#include "simulator/static_batch_system.h"

#include <algorithm>

#include "base/status.h"

namespace quire::simulator {

std::int64_t StaticBatchSystem::MaxBatch() const {
  return std::min<std::int64_t>(options_.num_slots / options_.max_len, options_.max_num_seqs);
}

absl::Status StaticBatchSystem::CheckFits(const Request& request) const {
  if (request.total_len() > options_.max_len) {
    return InvalidArgument("prompt and answer of {} tokens exceed the longest reservation of {}",
                           request.total_len(), options_.max_len);
  }
  if (MaxBatch() < 1) {
    return InvalidArgument("a reservation of {} slots does not fit {} slots", options_.max_len,
                           options_.num_slots);
  }
  return absl::OkStatus();
}

void StaticBatchSystem::Add(std::int32_t index, const Request& request, std::vector<TokenId>,
                            absl::Time) {
  const SequenceId first = script_.Add(index, request);
  for (std::int32_t branch = 0; branch < request.num_branches; ++branch) {
    waiting_.emplace_back(first.value() + static_cast<std::uint64_t>(branch));
  }
}

std::int32_t StaticBatchSystem::NumTokens(const Member& member) const {
  return member.num_computed == 0 ? script_.at(member.id).request->prompt_len() : 1;
}

void StaticBatchSystem::FormBatch(std::vector<Happening>* happenings) {
  while (!waiting_.empty() && std::ssize(batch_) < MaxBatch()) {
    batch_.push_back({.id = waiting_.front()});
    waiting_.pop_front();
    const ScriptedSequences::Sequence& script = script_.at(batch_.back().id);
    if (script.branch > 0) continue;
    counters_.prefix_query_tokens += script.request->prompt_len();
    happenings->push_back({.kind = Happening::Kind::kAdmitted, .request = script.index});
  }
}

StepWork StaticBatchSystem::BeginStep(absl::Time, std::vector<Happening>* happenings) {
  StepWork work;
  if (batch_.empty()) FormBatch(happenings);
  for (const Member& member : batch_) {
    const std::int32_t num_tokens = NumTokens(member);
    work.Add(member.num_computed, num_tokens);
    (member.num_computed == 0 ? counters_.prefill_tokens : counters_.decode_tokens) += num_tokens;
  }
  computes_ = true;
  return work;
}

MemoryUse StaticBatchSystem::memory() const {
  MemoryUse use{.capacity = options_.num_slots, .reserved = std::ssize(batch_) * options_.max_len};
  for (const Member& member : batch_) {
    if (member.finished) continue;
    use.useful += member.num_computed;
    if (computes_) use.useful += NumTokens(member) / 2.0;
  }
  use.unshared = use.reserved;
  return use;
}

void StaticBatchSystem::EndStep(absl::Duration /*took*/, std::vector<Happening>* happenings) {
  computes_ = false;
  bool all_finished = true;
  for (Member& member : batch_) {
    member.num_computed += NumTokens(member);
    if (member.finished) continue;
    member.finished = script_.Next(member.id).finished;
    all_finished = all_finished && member.finished;
    // Nothing reaches the client before the whole batch is done.
  }
  if (!all_finished) return;
  for (const Member& member : batch_) {
    const ScriptedSequences::Sequence& script = script_.at(member.id);
    for (std::int32_t i = 0; i < script.request->output_len; ++i) {
      happenings->push_back({.kind = Happening::Kind::kToken, .request = script.index});
    }
    happenings->push_back({.kind = Happening::Kind::kFinished, .request = script.index});
  }
  batch_.clear();
}

}  // namespace quire::simulator
