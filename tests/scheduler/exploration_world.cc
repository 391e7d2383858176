#include "tests/scheduler/exploration_world.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/status.h"

namespace quire::scheduler {
namespace {

// Request r has the ids from 1 + r * kMaxBranches on.
constexpr std::uint64_t kMaxBranches = 4;
constexpr absl::Duration kTimeLimit = absl::Seconds(1);

SequenceId IdOf(std::int32_t request, std::int32_t branch) {
  return SequenceId{1 + static_cast<std::uint64_t>(request) * kMaxBranches +
                    static_cast<std::uint64_t>(branch)};
}

void AppendTo(std::string* digest, std::int64_t value) {
  digest->push_back(static_cast<char>(value));
}

}  // namespace

std::string Name(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kArrive:
      return fmt::format("arrive {}", action.argument);
    case Action::Kind::kCancel:
      return fmt::format("cancel {}", action.argument);
    case Action::Kind::kDeadline:
      return "deadline";
    case Action::Kind::kStep:
      return action.argument == 0 ? "step" : fmt::format("step, finishing {:#b}", action.argument);
    case Action::Kind::kFailedStep:
      return "failed step";
    case Action::Kind::kReset:
      return "reset of the prefix cache";
  }
  return "?";
}

ExploredWorld::ExploredWorld(const SmallWorld& world)
    : world_(world),
      blocks_(world.blocks),
      scheduler_(world.scheduler, &blocks_),
      engine_(world.blocks.num_blocks, world.blocks.block_size),
      contents_(static_cast<std::size_t>(world.blocks.num_blocks)) {}

std::vector<Action> ExploredWorld::NextActions() const {
  std::vector<Action> actions;
  for (std::uint8_t r = 0; r < world_.requests.size(); ++r) {
    if ((arrived_ >> r & 1) == 0) actions.push_back({Action::Kind::kArrive, r});
  }
  for (const auto& [id, branch] : live_) {
    actions.push_back({Action::Kind::kCancel, static_cast<std::uint8_t>(id.value())});
  }
  const absl::Time next_deadline = scheduler_.next_deadline();
  if (next_deadline > now_ && next_deadline < absl::InfiniteFuture()) {
    actions.push_back({Action::Kind::kDeadline});
  }
  if (scheduler_.has_work()) {
    actions.push_back({Action::Kind::kStep});
    if (world_.steps_may_fail) actions.push_back({Action::Kind::kFailedStep});
  }
  if (world_.cache_may_be_reset && blocks_.stats().cached > 0) {
    actions.push_back({Action::Kind::kReset});
  }
  return actions;
}

absl::Status ExploredWorld::Do(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kArrive:
      QUIRE_RETURN_IF_ERROR(Arrive(action.argument));
      break;
    case Action::Kind::kCancel:
      QUIRE_RETURN_IF_ERROR(Cancel(SequenceId{action.argument}));
      break;
    case Action::Kind::kDeadline:
      now_ = scheduler_.next_deadline();
      break;
    case Action::Kind::kStep:
      QUIRE_RETURN_IF_ERROR(Step(action.argument));
      break;
    case Action::Kind::kFailedStep:
      QUIRE_RETURN_IF_ERROR(FailStep());
      break;
    case Action::Kind::kReset:
      blocks_.ResetPrefixCache();
      if (blocks_.stats().cached != 0) return Internal("cached blocks survive a reset");
      break;
  }
  BookWhoRuns();
  return CheckAll();
}

absl::Status ExploredWorld::Arrive(std::int32_t request) {
  const SmallRequest& wanted = world_.requests[static_cast<std::size_t>(request)];
  QUIRE_RETURN_IF_ERROR(
      scheduler_.CheckFits(static_cast<std::int64_t>(wanted.prompt.size()), wanted.num_branches));
  arrived_ |= 1u << request;
  ++num_arrivals_;
  NewSequence sequence{.id = IdOf(request, 0), .prompt = wanted.prompt};
  sequence.max_total_tokens = static_cast<std::int32_t>(wanted.prompt.size()) + wanted.max_outputs;
  sequence.priority = wanted.priority;
  sequence.arrival = absl::UnixEpoch() + absl::Nanoseconds(num_arrivals_);
  if (wanted.has_deadline) sequence.deadline = now_ + kTimeLimit;
  sequence.salt = block_manager::CacheSalt::ForRequest(wanted.salt);
  sequence.bypass_prefix_cache = wanted.bypass_prefix_cache;
  for (std::int32_t index = 0; index < wanted.num_branches; ++index) {
    const SequenceId id = IdOf(request, index);
    if (index > 0) sequence.forks.push_back(id);
    engine_.SetJob(id, {.branch = index, .num_output_tokens = wanted.max_outputs});
    live_[id] = {.id = id,
                 .request = request,
                 .index = index,
                 .arrival = num_arrivals_,
                 .deadline = sequence.deadline};
    num_ends_[id] = 0;
  }
  scheduler_.Add(std::move(sequence));
  return absl::OkStatus();
}

absl::Status ExploredWorld::Cancel(SequenceId id) {
  const Branch branch = live_.at(id);
  scheduler_.Cancel(id);
  QUIRE_RETURN_IF_ERROR(End(id));
  if (branch.index > 0) return absl::OkStatus();
  // Those that have not forked yet go with it.
  for (std::int32_t index = 1; index < RequestOf(branch).num_branches; ++index) {
    const auto fork = live_.find(IdOf(branch.request, index));
    if (fork != live_.end() && IsPendingFork(fork->second)) {
      QUIRE_RETURN_IF_ERROR(End(fork->first));
    }
  }
  return absl::OkStatus();
}

absl::Status ExploredWorld::Step(std::uint32_t finish_mask) {
  const StepPlan& plan = scheduler_.Schedule(now_);
  QUIRE_RETURN_IF_ERROR(BookPlan(plan));
  StepResult result = engine_.Run(plan);
  BookContents(plan);
  num_choices_ = 0;
  for (SequenceResult& sequence : result.sequences) {
    if (!sequence.finished) sequence.finished = (finish_mask >> num_choices_++ & 1) != 0;
    QUIRE_RETURN_IF_ERROR(BookToken(sequence));
  }
  scheduler_.Apply(result);
  return absl::OkStatus();
}

absl::Status ExploredWorld::FailStep() {
  const StepPlan& plan = scheduler_.Schedule(now_);
  QUIRE_RETURN_IF_ERROR(BookPlan(plan));
  std::vector<SequenceId> planned;
  for (const ScheduledSequence& sequence : plan.scheduled) planned.push_back(sequence.id);
  const std::vector<SequenceId> abandoned = scheduler_.Abandon();
  for (const SequenceId id : planned) {
    if (std::ranges::count(abandoned, id) != 1) {
      return Internal("sequence {} is not abandoned with its step", id.value());
    }
  }
  for (const SequenceId id : abandoned) QUIRE_RETURN_IF_ERROR(End(id));
  return absl::OkStatus();
}

absl::Status ExploredWorld::End(SequenceId id) {
  const auto ends = num_ends_.find(id);
  if (ends == num_ends_.end()) return Internal("sequence {} ends, but never came", id.value());
  if (++ends->second > 1) return Internal("sequence {} ends a second time", id.value());
  live_.erase(id);
  return absl::OkStatus();
}

absl::Status ExploredWorld::BookPlan(const StepPlan& plan) {
  for (const Termination& termination : plan.terminated) {
    QUIRE_RETURN_IF_ERROR(BookTermination(termination));
  }
  for (const auto& [id, branch] : live_) {
    if (branch.deadline <= now_) return Internal("sequence {} outlives its deadline", id.value());
  }
  std::vector<SequenceId> waiting;
  for (const auto& [id, branch] : live_) {
    if (!branch.running && !IsPendingFork(branch)) waiting.push_back(id);
  }
  const std::optional<SequenceId> most_senior = MostSeniorRunning();
  for (const SequenceId id : plan.preempted) {
    // Except for somebody more urgent who waits.
    const bool may_be_senior = std::ranges::any_of(waiting, [&](SequenceId other) {
      return PriorityOf(live_.at(other)) < PriorityOf(live_.at(id));
    });
    if (id == most_senior && !may_be_senior) {
      return Internal("the most senior sequence, {}, is preempted", id.value());
    }
    QUIRE_RETURN_IF_ERROR(BookPreemption(id));
  }
  for (const Admission& admission : plan.admitted) {
    Branch& branch = live_.at(admission.id);
    if (std::exchange(branch.admitted, true)) {
      return Internal("sequence {} is admitted twice", admission.id.value());
    }
  }
  BookWhoRuns();
  QUIRE_RETURN_IF_ERROR(BookOvertaking(waiting));

  if (plan.empty() != live_.empty()) {
    return Internal("{} sequences live, but {} are scheduled", live_.size(), plan.scheduled.size());
  }
  if (plan.num_tokens > world_.scheduler.max_num_batched_tokens) {
    return Internal("a step of {} tokens", plan.num_tokens);
  }
  for (const ScheduledSequence& sequence : plan.scheduled) {
    if (!live_.contains(sequence.id)) {
      return Internal("sequence {} is scheduled after its end", sequence.id.value());
    }
  }
  return absl::OkStatus();
}

absl::Status ExploredWorld::BookTermination(const Termination& termination) {
  const auto found = live_.find(termination.id);
  if (found == live_.end()) {
    return Internal("sequence {} is terminated after its end", termination.id.value());
  }
  const Branch& branch = found->second;
  switch (termination.reason) {
    case TerminalReason::kNoProgress:
      return Internal("no progress: sequence {} has to go", termination.id.value());
    case TerminalReason::kDeadlineExceeded:
      ++happenings_.expired;
      if (branch.deadline > now_) {
        return Internal("sequence {} ends before its deadline", termination.id.value());
      }
      break;
    case TerminalReason::kKvCapacity:
      ++happenings_.outgrown;
      if (static_cast<std::int64_t>(RequestOf(branch).prompt.size()) + branch.num_outputs <=
          blocks_.capacity() * blocks_.block_size()) {
        return Internal("sequence {} ends for want of blocks but fits", termination.id.value());
      }
      break;
  }
  return End(termination.id);
}

absl::Status ExploredWorld::BookPreemption(SequenceId id) {
  Branch& branch = live_.at(id);
  if (!branch.running) return Internal("sequence {} is preempted but waits", id.value());
  if (branch.resuming) return Internal("sequence {} is preempted while it resumes", id.value());
  branch.resuming = true;
  branch.decoding = false;
  branch.running = false;
  return absl::OkStatus();
}

// `waiting` are those that waited before the step; who runs now is booked already.
absl::Status ExploredWorld::BookOvertaking(const std::vector<SequenceId>& waiting) {
  for (const SequenceId id : waiting) {
    Branch& passed = live_.at(id);
    if (passed.running) continue;
    const auto passes = std::ranges::count_if(waiting, [&](SequenceId other) {
      return live_.at(other).running && GoesBefore(passed, live_.at(other));
    });
    if (passes == 0) continue;
    happenings_.overtakings += passes;
    const bool too_often =
        passed.resuming || passed.times_overtaken >= world_.scheduler.max_overtakes;
    if (too_often && !MayAwaitAPrefix(passed)) {
      return Internal("sequence {} is overtaken once more", id.value());
    }
    passed.times_overtaken += static_cast<std::int32_t>(passes);
  }
  return absl::OkStatus();
}

absl::Status ExploredWorld::BookToken(const SequenceResult& result) {
  const auto found = live_.find(result.id);
  if (found == live_.end()) return Internal("sequence {} yields after its end", result.id.value());
  Branch& branch = found->second;
  ++branch.num_outputs;
  branch.decoding = true;
  branch.resuming = false;
  if (result.new_tokens !=
      std::vector<TokenId>{
          fakes::ExpectedOutput(RequestOf(branch).prompt, branch.index, branch.num_outputs)
              .back()}) {
    return Internal("sequence {} yields a token that it would not yield alone", result.id.value());
  }
  return result.finished ? End(result.id) : absl::OkStatus();
}

void ExploredWorld::BookContents(const StepPlan& plan) {
  const std::int32_t size = blocks_.block_size();
  for (const ScheduledSequence& sequence : plan.scheduled) {
    const std::size_t salt = std::hash<std::string>()(RequestOf(live_.at(sequence.id)).salt);
    const std::int32_t end = sequence.first_token + sequence.num_tokens;
    for (std::int32_t b = sequence.first_token / size; (b + 1) * size <= end; ++b) {
      const auto index = static_cast<std::size_t>(b - sequence.first_position / size);
      const auto block = static_cast<std::size_t>(sequence.block_table[index].value());
      contents_[block] =
          salt ^
          fakes::PrefixDigest(sequence.tokens.first(static_cast<std::size_t>((b + 1) * size)));
    }
  }
}

void ExploredWorld::BookWhoRuns() {
  for (auto& [id, branch] : live_) branch.running = false;
  for (const Scheduler::SequenceView& view : scheduler_.RunningSequences()) {
    const auto found = live_.find(view.id);
    if (found != live_.end()) found->second.running = true;
  }
}

absl::Status ExploredWorld::CheckAll() const {
  QUIRE_RETURN_IF_ERROR(scheduler_.Audit());
  const block_manager::BlockStats stats = blocks_.stats();
  if (stats.active + stats.cached + stats.free != stats.capacity) {
    return Internal("{} + {} + {} blocks are not {}", stats.active, stats.cached, stats.free,
                    stats.capacity);
  }
  std::int64_t active = 0, cached = 0, owners = 0;
  for (const block_manager::BlockManager::BlockInfo& info : blocks_.BlockInfos()) {
    active += info.state == block_manager::BlockState::kActive ? 1 : 0;
    cached += info.state == block_manager::BlockState::kCached ? 1 : 0;
    owners += info.owners;
  }
  if (active != stats.active || cached != stats.cached || owners != stats.logical_blocks) {
    return Internal("the block map shows {} active and {} cached blocks", active, cached);
  }
  if (scheduler_.has_work() == live_.empty()) {
    return Internal("{} sequences live, but the scheduler has {}work", live_.size(),
                    scheduler_.has_work() ? "" : "no ");
  }
  if (live_.empty() && stats.active != 0) {
    return Internal("{} blocks are lost", stats.active);
  }
  for (const Scheduler::SequenceView& view : scheduler_.RunningSequences()) {
    if (!live_.contains(view.id)) return Internal("sequence {} runs on", view.id.value());
  }
  const SchedulerStats counts = scheduler_.stats();
  if (counts.num_running + counts.num_waiting != static_cast<std::int64_t>(live_.size())) {
    return Internal("{} run and {} wait, but {} live", counts.num_running, counts.num_waiting,
                    live_.size());
  }
  absl::Time next_deadline = absl::InfiniteFuture();
  for (const auto& [id, branch] : live_) next_deadline = std::min(next_deadline, branch.deadline);
  if (scheduler_.next_deadline() != next_deadline) return Internal("a deadline is lost");
  return absl::OkStatus();
}

std::int32_t ExploredWorld::PriorityOf(const Branch& branch) const {
  return world_.scheduler.policy == Policy::kPriority ? RequestOf(branch).priority : 0;
}

bool ExploredWorld::GoesBefore(const Branch& a, const Branch& b) const {
  return std::tuple(PriorityOf(a), !a.resuming, a.arrival, a.id) <
         std::tuple(PriorityOf(b), !b.resuming, b.arrival, b.id);
}

std::optional<SequenceId> ExploredWorld::MostSeniorRunning() const {
  const Branch* senior = nullptr;
  const auto seniority = [this](const Branch& branch) {
    return std::tuple(PriorityOf(branch), branch.arrival, branch.id);
  };
  for (const auto& [id, branch] : live_) {
    if (!branch.running) continue;
    if (senior == nullptr || seniority(branch) < seniority(*senior)) senior = &branch;
  }
  return senior == nullptr ? std::nullopt : std::optional(senior->id);
}

// Whoever waits for a prefix that another one computes is passed for a good reason.
bool ExploredWorld::MayAwaitAPrefix(const Branch& branch) const {
  const SmallRequest& own = RequestOf(branch);
  return std::ranges::any_of(world_.requests, [&](const SmallRequest& other) {
    return &other != &own && other.prompt[0] == own.prompt[0] && other.salt == own.salt;
  });
}

Happenings ExploredWorld::happenings() const {
  Happenings happenings = happenings_;
  const SchedulerStats scheduler = scheduler_.stats();
  const block_manager::BlockStats blocks = blocks_.stats();
  happenings.preemptions = scheduler.num_preemptions;
  happenings.hits = scheduler.prefix_hit_tokens;
  happenings.hits_after_preemption = scheduler.prefix_hit_tokens_after_preemption;
  happenings.evictions = blocks.evictions;
  happenings.copies_on_write = blocks.copies_on_write;
  return happenings;
}

// A sequence that takes every block there is gets the free ones first, then the cached ones in the
// order in which they are evicted.
std::vector<std::uint64_t> ExploredWorld::CachedContentsOldestFirst() {
  const auto num_free = static_cast<std::size_t>(blocks_.stats().free);
  std::vector<TokenId> taker(
      static_cast<std::size_t>(blocks_.num_available() * blocks_.block_size()));
  std::iota(taker.begin(), taker.end(), 1'000'000'000);
  block_manager::SequenceBlocks sequence = blocks_.NewSequence({});
  std::vector<std::uint64_t> contents;
  if (taker.empty()) return contents;
  if (blocks_.Admit(&sequence, taker, {}) != block_manager::Verdict::kNow) return contents;
  for (const BlockId id : sequence.table().blocks().subspan(num_free)) {
    contents.push_back(contents_[static_cast<std::size_t>(id.value())]);
  }
  return contents;
}

std::string ExploredWorld::TakeDigest() {
  std::string digest;
  AppendTo(&digest, arrived_);
  std::vector<const Branch*> by_arrival;
  std::vector<absl::Time> deadlines{now_};
  for (const auto& [id, branch] : live_) {
    by_arrival.push_back(&branch);
    deadlines.push_back(branch.deadline);
  }
  std::ranges::sort(by_arrival, {}, [](const Branch* b) { return std::pair(b->arrival, b->id); });
  std::ranges::sort(deadlines);
  deadlines.erase(std::unique(deadlines.begin(), deadlines.end()), deadlines.end());
  for (const Branch* branch : by_arrival) {
    const auto deadline = std::ranges::find(deadlines, branch->deadline) - deadlines.begin();
    AppendTo(&digest, static_cast<std::int64_t>(branch->id.value()));
    AppendTo(&digest, branch->num_outputs);
    AppendTo(&digest, std::min(branch->times_overtaken, world_.scheduler.max_overtakes));
    AppendTo(&digest, branch->running << 2 | branch->decoding << 1 | branch->resuming << 0);
    AppendTo(&digest, deadline);
  }
  std::vector<std::int64_t> names(contents_.size(), -1);
  std::int64_t next_name = 0;
  for (const Scheduler::SequenceView& view : scheduler_.RunningSequences()) {
    AppendTo(&digest, static_cast<std::int64_t>(view.id.value()));
    AppendTo(&digest, view.num_tokens);
    AppendTo(&digest, view.num_computed_tokens);
    AppendTo(&digest, static_cast<std::int64_t>(view.block_table.size()));
    for (const BlockId id : view.block_table) {
      std::int64_t& name = names[static_cast<std::size_t>(id.value())];
      if (name < 0) name = next_name++;
      AppendTo(&digest, name);
    }
  }
  for (std::uint64_t content : CachedContentsOldestFirst()) {
    for (int byte = 0; byte < 8; ++byte, content >>= 8) {
      digest.push_back(static_cast<char>(content));
    }
  }
  return digest;
}

}  // namespace quire::scheduler
