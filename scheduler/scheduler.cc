#include "scheduler/scheduler.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "scheduler/sequence_store.h"
#include "scheduler/step_planner.h"

namespace quire::scheduler {
namespace {

// Finds results by id; O(1) each when asked in the order in which they are stored.
class ResultReader {
 public:
  explicit ResultReader(const StepResult& result) : results_(result.sequences) {}

  // REQUIRES: there is a result for `id`.
  const SequenceResult& Take(SequenceId id) {
    const auto end = results_.end();
    const auto is_of = [id](const SequenceResult& result) { return result.id == id; };
    if (next_ == end || next_->id != id) next_ = std::ranges::find_if(results_, is_of);
    QUIRE_CHECK(next_ != end) << "no result for sequence " << id.value();
    return *next_++;
  }

 private:
  std::span<const SequenceResult> results_;
  std::span<const SequenceResult>::iterator next_ = results_.begin();
};

}  // namespace

class Scheduler::Impl {
 public:
  Impl(const SchedulerOptions& options, block_manager::BlockManager* blocks)
      : options_(options),
        blocks_(blocks),
        store_(options.client_quantum),
        planner_(options, blocks, &store_, &stats_) {}

  absl::Status CheckFits(std::int64_t num_prompt_tokens, std::int32_t num_branches) const;
  void Add(NewSequence request);
  void Cancel(SequenceId id);
  const StepPlan& Schedule(absl::Time now);
  void Apply(const StepResult& result);
  void StepTook(absl::Duration duration) { planner_.StepTook(duration); }
  std::vector<SequenceId> Abandon();
  SchedulerStats stats() const;
  absl::Status Audit() const;
  const SequenceStore& store() const { return store_; }

 private:
  // Once per decoding sequence and step: a call would cost as much as what it does.
  [[gnu::always_inline]] void Yield(Sequence* sequence, const SequenceResult& result);
  void StartForks(Sequence* parent, ResultReader* results);
  std::uint64_t FirstBlockHash(std::span<const TokenId> prompt, block_manager::SaltId salt) const;

  const SchedulerOptions options_;
  block_manager::BlockManager* blocks_;
  SequenceStore store_;
  SchedulerStats stats_;
  StepPlanner planner_;
  StepPlan plan_;
  bool plan_is_outstanding_ = false;
  absl::Time now_;  // Of the last Schedule.
};

absl::Status Scheduler::Impl::CheckFits(std::int64_t num_prompt_tokens,
                                        std::int32_t num_branches) const {
  if (num_prompt_tokens < 1) return InvalidArgument("prompt is empty");
  if (num_prompt_tokens + 1 > options_.max_model_len) {
    return InvalidArgument(
        "prompt of {} tokens leaves no room for a new one: max_model_len is {} tokens",
        num_prompt_tokens, options_.max_model_len);
  }
  if (blocks_->BlocksForTokens(num_prompt_tokens + 1, options_.window()) > blocks_->capacity()) {
    const std::int64_t slots = blocks_->capacity() * blocks_->block_size();
    return InvalidArgument(
        "prompt of {} tokens and one new token exceed the KV pool of {} slots ({} blocks of {})",
        num_prompt_tokens, slots, blocks_->capacity(), blocks_->block_size());
  }
  if (num_branches < 1 || num_branches > options_.max_num_seqs) {
    return InvalidArgument("n must be in [1, {}] (max-num-seqs), got {}", options_.max_num_seqs,
                           num_branches);
  }
  return absl::OkStatus();
}

void Scheduler::Impl::Add(NewSequence request) {
  const absl::Status fits = CheckFits(static_cast<std::int64_t>(request.prompt.size()),
                                      1 + static_cast<std::int32_t>(request.forks.size()));
  QUIRE_CHECK(fits.ok()) << AsStd(fits.message());
  QUIRE_CHECK(blocks_->BlocksForTokens(request.reserve_tokens) <= blocks_->capacity())
      << "cannot reserve " << request.reserve_tokens << " tokens";
  QUIRE_DCHECK(request.max_total_tokens <= options_.max_model_len);
  block_manager::SequenceBlocks blocks = blocks_->NewSequence(request.salt);
  const std::uint64_t first_block_hash = FirstBlockHash(request.prompt, blocks.salt());
  const std::int32_t num_cached = blocks_->NumCachedTokens(blocks, request.prompt);
  store_.Add(std::unique_ptr<Sequence>(new Sequence{
      .id = request.id,
      .tokens = std::move(request.prompt),
      .priority = options_.policy == Policy::kPriority ? request.priority : 0,
      .max_total_tokens = request.max_total_tokens,
      .arrival = request.arrival,
      .blocks = std::move(blocks),
      .pending_forks = std::move(request.forks),
      .deadline = request.deadline,
      .bypass_prefix_cache = request.bypass_prefix_cache,
      .first_block_hash = first_block_hash,
      .num_cached_on_arrival = num_cached,
      .reserve_tokens = request.reserve_tokens,
      .client_id = std::move(request.client_id),
      .session = std::move(request.session),
  }));
}

std::uint64_t Scheduler::Impl::FirstBlockHash(std::span<const TokenId> prompt,
                                              block_manager::SaltId salt) const {
  const auto size = static_cast<std::size_t>(blocks_->block_size());
  if (prompt.size() < size) return 0;
  return block_manager::HashPrefixKey(
      {.salt = salt, .parent = block_manager::kNoParent, .tokens = prompt.first(size)}, 0);
}

void Scheduler::Impl::Cancel(SequenceId id) {
  QUIRE_CHECK(!plan_is_outstanding_) << "Cancel between Schedule and Apply";
  Sequence* const sequence = store_.Find(id);
  if (sequence == nullptr) return;
  if (sequence->id == id) {
    store_.Remove(sequence);
  } else {
    store_.DropFork(sequence, id);
  }
}

const StepPlan& Scheduler::Impl::Schedule(absl::Time now) {
  QUIRE_CHECK(!plan_is_outstanding_) << "Schedule before Apply";
  now_ = now;
  blocks_->ExpireLeases(now);
  planner_.Plan(now, &plan_);
  plan_is_outstanding_ = !plan_.empty();
  return plan_;
}

// Books the new tokens of a sequence that sampled.
inline void Scheduler::Impl::Yield(Sequence* sequence, const SequenceResult& result) {
  for (const TokenId token : result.new_tokens) sequence->tokens.push_back(token);
  if (result.finished) {
    if (sequence->session.has_value() && !result.failed) {
      blocks_->Lease(*sequence->session, &sequence->blocks, sequence->tokens, now_);
    }
    store_.Remove(sequence);
    return;
  }
  QUIRE_CHECK(!result.new_tokens.empty()) << "no token for sequence " << result.id.value();
  QUIRE_DCHECK(sequence->num_tokens() < sequence->max_total_tokens)
      << "sequence " << sequence->id.value() << " should have finished";
  planner_.Yielded(static_cast<std::int32_t>(result.new_tokens.size()));
  sequence->decoding = true;
  sequence->resuming = false;
}

void Scheduler::Impl::Apply(const StepResult& result) {
  plan_is_outstanding_ = false;
  blocks_->FinishCopies();
  ResultReader results(result);
  Sequence* const* next = planner_.scheduled().data();
  for (const ScheduledSequence& entry : plan_.scheduled) {
    Sequence* const sequence = *next++;
    const std::int32_t num_computed = entry.first_token + entry.num_tokens;
    blocks_->Commit(&sequence->blocks, sequence->tokens, num_computed);
    if (options_.sliding_window > 0) {
      blocks_->SlideWindow(&sequence->blocks, options_.window().FirstSeen(num_computed));
    }
    if (!entry.samples) continue;
    const SequenceResult& own = results.Take(entry.id);
    if (!sequence->decoding) StartForks(sequence, &results);
    Yield(sequence, own);
  }
  plan_.scheduled.clear();
}

// The prompt of `parent` is computed: its pending forks become sequences of their own, which share
// all of its blocks. Those that have finished with their first token never run.
void Scheduler::Impl::StartForks(Sequence* parent, ResultReader* results) {
  while (!parent->pending_forks.empty()) {
    const SequenceId id = parent->pending_forks.front();
    const SequenceResult& result = results->Take(id);
    if (result.finished) {
      store_.DropFork(parent, id);
      continue;
    }
    Sequence* const fork =
        store_.StartFork(parent, std::unique_ptr<Sequence>(new Sequence{
                                     .id = id,
                                     .tokens = parent->tokens,
                                     .was_admitted = true,
                                     .priority = parent->priority,
                                     .max_total_tokens = parent->max_total_tokens,
                                     .arrival = parent->arrival,
                                     .blocks = blocks_->Fork(parent->blocks),
                                     .deadline = parent->deadline,
                                     .bypass_prefix_cache = parent->bypass_prefix_cache,
                                     .first_block_hash = parent->first_block_hash,
                                     .client_id = parent->client_id,
                                 }));
    stats_.fork_shared_tokens += fork->num_computed_tokens();
    Yield(fork, result);
  }
}

std::vector<SequenceId> Scheduler::Impl::Abandon() {
  plan_is_outstanding_ = false;
  blocks_->FinishCopies();
  std::vector<SequenceId> ids;
  for (Sequence* sequence : planner_.scheduled().first(plan_.scheduled.size())) {
    ids.push_back(sequence->id);
    ids.insert(ids.end(), sequence->pending_forks.begin(), sequence->pending_forks.end());
    store_.Remove(sequence);
  }
  plan_.scheduled.clear();
  return ids;
}

SchedulerStats Scheduler::Impl::stats() const {
  SchedulerStats stats = stats_;
  stats.num_running = store_.running_slots();
  stats.num_waiting = store_.waiting().num_branches();
  // They may all be gone since the last Schedule, and the next one may be far away.
  if (stats.num_waiting == 0) stats.waiting_because = {};
  stats.num_waiting_tokens = store_.waiting().num_tokens();
  stats.oldest_waiting_arrival = store_.waiting().oldest_arrival();
  stats.prefill_cap = planner_.prefill_cap();
  return stats;
}

absl::Status Scheduler::Impl::Audit() const {
  QUIRE_RETURN_IF_ERROR(store_.Audit());
  if (store_.running_slots() > options_.max_num_seqs) {
    return Internal("{} sequences run, but max-num-seqs is {}", store_.running_slots(),
                    options_.max_num_seqs);
  }
  std::vector<const block_manager::SequenceBlocks*> blocks;
  for (const Sequence* sequence : store_.running()) {
    if (sequence->num_uncomputed_tokens() < 1) {
      return Internal("running sequence {} has nothing to compute", sequence->id.value());
    }
    if (sequence->decoding && sequence->num_uncomputed_tokens() > planner_.most_yielded()) {
      return Internal(
          "decoding sequence {} has {} tokens to compute, but no step yielded more than {}",
          sequence->id.value(), sequence->num_uncomputed_tokens(), planner_.most_yielded());
    }
    blocks.push_back(&sequence->blocks);
  }
  return blocks_->Audit(blocks);
}

Scheduler::Scheduler(const SchedulerOptions& options, block_manager::BlockManager* blocks)
    : impl_(std::make_unique<Impl>(options, blocks)) {}
Scheduler::~Scheduler() = default;

absl::Status Scheduler::CheckFits(std::int64_t num_prompt_tokens, std::int32_t num_branches) const {
  return impl_->CheckFits(num_prompt_tokens, num_branches);
}
void Scheduler::Add(NewSequence sequence) { impl_->Add(std::move(sequence)); }
void Scheduler::Cancel(SequenceId id) { impl_->Cancel(id); }
const StepPlan& Scheduler::Schedule(absl::Time now) { return impl_->Schedule(now); }
void Scheduler::Apply(const StepResult& result) { impl_->Apply(result); }
void Scheduler::StepTook(absl::Duration duration) { impl_->StepTook(duration); }
std::vector<SequenceId> Scheduler::Abandon() { return impl_->Abandon(); }
bool Scheduler::has_work() const { return !impl_->store().empty(); }
absl::Time Scheduler::next_deadline() const { return impl_->store().next_deadline(); }
SchedulerStats Scheduler::stats() const { return impl_->stats(); }
absl::Status Scheduler::Audit() const { return impl_->Audit(); }

void Scheduler::CheckInvariants() const {
  const absl::Status status = Audit();
  QUIRE_CHECK(status.ok()) << AsStd(status.message());
}

std::vector<Scheduler::SequenceView> Scheduler::RunningSequences() const {
  std::vector<SequenceView> views;
  for (const Sequence* sequence : impl_->store().running()) {
    views.push_back({sequence->id, sequence->num_tokens(), sequence->num_computed_tokens(),
                     sequence->blocks.table().blocks()});
  }
  return views;
}

}  // namespace quire::scheduler
