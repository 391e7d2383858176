#include "simulator/reservation_system.h"

#include <bit>
#include <optional>

#include "base/status.h"

namespace quire::simulator {

ReservationSystem::ReservationSystem(const ReservationOptions& options)
    : options_(options), slots_(options.num_slots) {}

std::int64_t ReservationSystem::SlotsFor(const Request& request) const {
  switch (options_.reservation) {
    case Reservation::kMax:
      return options_.max_len;
    case Reservation::kPow2:
      return request.prompt_len() + static_cast<std::int64_t>(std::bit_ceil(
                                        static_cast<std::uint32_t>(request.output_len)));
    case Reservation::kOracle:
      return request.total_len();
  }
  return 0;
}

absl::Status ReservationSystem::CheckFits(const Request& request) const {
  if (request.total_len() > options_.max_len) {
    return InvalidArgument("prompt and answer of {} tokens exceed the longest reservation of {}",
                           request.total_len(), options_.max_len);
  }
  if (!slots_.CanHold(SlotsFor(request))) {
    return InvalidArgument("a reservation of {} slots does not fit {} slots", SlotsFor(request),
                           slots_.capacity());
  }
  return absl::OkStatus();
}

void ReservationSystem::Add(std::int32_t index, const Request& request, std::vector<TokenId>,
                            absl::Time) {
  const SequenceId first = script_.Add(index, request);
  for (std::int32_t branch = 0; branch < request.num_branches; ++branch) {
    waiting_.emplace_back(first.value() + static_cast<std::uint64_t>(branch));
  }
}

StepWork ReservationSystem::BeginStep(absl::Time, std::vector<Happening>* happenings) {
  StepWork work;
  for (Running& sequence : running_) {
    sequence.num_scheduled = 1;
    work.Add(sequence.num_computed, 1);
    ++counters_.decode_tokens;
  }
  while (!waiting_.empty() && std::ssize(running_) < options_.max_num_seqs) {
    const SequenceId id = waiting_.front();
    const ScriptedSequences::Sequence& script = script_.at(id);
    const std::int32_t prompt_len = script.request->prompt_len();
    if (work.prefill_tokens > 0 &&
        work.num_tokens() + prompt_len > options_.max_num_batched_tokens) {
      break;
    }
    const std::optional<BuddyAllocator::Piece> piece = slots_.Allocate(SlotsFor(*script.request));
    if (!piece) break;
    waiting_.pop_front();
    running_.push_back({.id = id, .piece = *piece, .num_scheduled = prompt_len});
    reserved_ += piece->size();
    work.Add(0, prompt_len);
    counters_.prefill_tokens += prompt_len;
    if (script.branch > 0) continue;
    counters_.prefix_query_tokens += prompt_len;
    happenings->push_back({.kind = Happening::Kind::kAdmitted, .request = script.index});
  }
  scheduled_ = work.num_tokens();
  return work;
}

MemoryUse ReservationSystem::memory() const {
  return {.capacity = options_.num_slots,
          .reserved = reserved_,
          .useful = static_cast<double>(computed_) + static_cast<double>(scheduled_) / 2,
          .unshared = reserved_};
}

void ReservationSystem::EndStep(absl::Duration /*took*/, std::vector<Happening>* happenings) {
  scheduled_ = 0;
  std::erase_if(running_, [&](Running& sequence) {
    sequence.num_computed += sequence.num_scheduled;
    computed_ += sequence.num_scheduled;
    const ScriptedSequences::Output output = script_.Next(sequence.id);
    const std::int32_t request = script_.at(sequence.id).index;
    happenings->push_back({.kind = Happening::Kind::kToken, .request = request});
    if (!output.finished) return false;
    happenings->push_back({.kind = Happening::Kind::kFinished, .request = request});
    computed_ -= sequence.num_computed;
    reserved_ -= sequence.piece.size();
    slots_.Free(sequence.piece);
    return true;
  });
}

}  // namespace quire::simulator
