#include "scheduler/admission.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "scheduler/block_need.h"

namespace quire::scheduler {

using block_manager::Verdict;

AdmissionControl::AdmissionControl(const SchedulerOptions& options,
                                   block_manager::BlockManager* blocks, SequenceStore* store,
                                   SchedulerStats* stats)
    : max_num_seqs_(options.max_num_seqs),
      max_overtakes_(options.max_overtakes),
      max_in_flight_steps_(options.max_in_flight_steps),
      watermark_blocks_(static_cast<std::int64_t>(
          std::ceil(options.watermark * static_cast<double>(blocks->capacity())))),
      window_(options.window()),
      blocks_(blocks),
      store_(store),
      stats_(stats),
      prefixes_(blocks->block_size()) {}

void AdmissionControl::BeginStep(std::span<Sequence* const> prefills) {
  prefixes_.Clear();
  for (const Sequence* sequence : prefills) prefixes_.Add(sequence);
  next_ = store_->waiting().begin();
  passed_.clear();
  may_pass_ = true;
  num_visited_ = 0;
  rest_ = &WaitingBecause::budget;
  stats_->waiting_because = {};
}

Sequence* AdmissionControl::AdmitNext() {
  for (; next_ != store_->waiting().end(); ++next_) {
    if (!may_pass_ || passed_.size() == kMaxPassedPerStep || num_visited_ == kMaxVisitedPerStep) {
      rest_ = &WaitingBecause::turn;
      return nullptr;
    }
    if (const WaitReason reason = NothingFits(); reason != kNone) {
      rest_ = reason;
      return nullptr;
    }
    Sequence* const sequence = *next_;
    const WaitReason reason = TryAdmit(sequence);
    if (reason == kNone) {
      for (Sequence* passed : passed_) {
        if (++passed->times_overtaken >= max_overtakes_) may_pass_ = false;
      }
      next_ = store_->Start(next_);
      prefixes_.Add(sequence);
      return sequence;
    }
    ++num_visited_;
    stats_->waiting_because.*reason += sequence->num_branches();
    if (sequence->resuming || sequence->times_overtaken >= max_overtakes_) {
      rest_ = &WaitingBecause::turn;
      return nullptr;
    }
    if (reason != &WaitingBecause::prefix_in_flight) passed_.push_back(sequence);
  }
  return nullptr;
}

void AdmissionControl::EndStep() {
  WaitingBecause& because = stats_->waiting_because;
  because.*rest_ += store_->waiting().num_branches() - because.total();
  prefixes_.Clear();
}

Sequence* AdmissionControl::AdmitHead(std::int64_t keep_available) {
  const WaitingQueue::Iterator head = store_->waiting().begin();
  Sequence* const sequence = *head;
  const Verdict verdict = TakeBlocks(sequence, keep_available);
  QUIRE_CHECK(verdict == Verdict::kNow) << "sequence " << sequence->id.value();
  store_->Start(head);
  return sequence;
}

// Every sequence takes a slot and at least one block.
AdmissionControl::WaitReason AdmissionControl::NothingFits() const {
  if (store_->running_slots() >= max_num_seqs_) return &WaitingBecause::slots;
  if (blocks_->num_available() == 0) return &WaitingBecause::blocks;
  if (blocks_->num_available() <= BlocksToKeep()) return &WaitingBecause::watermark;
  return kNone;
}

AdmissionControl::WaitReason AdmissionControl::TryAdmit(Sequence* sequence) {
  if (sequence->num_branches() > max_num_seqs_ - store_->running_slots()) {
    return &WaitingBecause::slots;
  }
  if (WaitsForPrefix(sequence)) return &WaitingBecause::prefix_in_flight;
  const std::int64_t keep = BlocksToKeep();
  const Verdict verdict = TakeBlocks(sequence, keep);
  if (verdict == Verdict::kNow) return kNone;
  return keep > 0 && NeedOf(*sequence, window_, *blocks_).num_blocks <= blocks_->num_available()
             ? &WaitingBecause::watermark
             : &WaitingBecause::blocks;
}

Verdict AdmissionControl::TakeBlocks(Sequence* sequence, std::int64_t keep_available) {
  block_manager::PrefixReport report;
  const Verdict verdict =
      blocks_->Admit(&sequence->blocks, sequence->tokens,
                     {.use_prefix_cache = !sequence->bypass_prefix_cache,
                      .keep_available = keep_available,
                      .reserve_tokens = sequence->reserve_tokens,
                      .window = window_,
                      .session = sequence->session.has_value() ? &*sequence->session : nullptr},
                     &report);
  // A sequence fits the pool when it is added, and is ended, not preempted, when it no longer does.
  QUIRE_DCHECK(verdict != Verdict::kNever) << "sequence " << sequence->id.value();
  if (verdict == Verdict::kNow) CountHits(sequence, report);
  return verdict;
}

// Where the tokens of a sequence that starts come from: each is counted once.
void AdmissionControl::CountHits(Sequence* sequence, const block_manager::PrefixReport& report) {
  if (sequence->was_admitted) {
    stats_->prefix_hit_tokens_after_preemption += report.hit;
    return;
  }
  if (!sequence->bypass_prefix_cache) {
    stats_->prefix_query_tokens += sequence->num_tokens();
    stats_->prefix_hit_tokens += report.hit;
    stats_->prefix_hit_tokens_session += report.hit_leased;
    stats_->prefix_hit_tokens_in_flight +=
        std::max(0, report.hit - std::max(report.hit_leased, sequence->num_cached_on_arrival));
  }
  // What is in flight was not seen before, or not kept.
  std::int32_t never_seen = report.never_seen, evicted = report.evicted;
  if (never_seen + evicted > 0) {
    std::int32_t in_flight = std::max(0, prefixes_.Find(*sequence).num_tokens - report.hit);
    for (std::int32_t* count : {&never_seen, &evicted}) {
      const std::int32_t part = std::min(in_flight, *count);
      stats_->prefix_misses.not_finished += part;
      *count -= part;
      in_flight -= part;
    }
  }
  PrefixMisses& misses = stats_->prefix_misses;
  misses.never_seen += never_seen;
  misses.evicted += evicted;
  misses.other_salt += report.other_salt;
  misses.partial_block += report.partial_block;
  misses.bypassed += report.bypassed;
}

bool AdmissionControl::AwaitsPrefix(const Sequence& sequence) const {
  const InFlightWait& wait = sequence.in_flight;
  if (wait.num_tokens == 0) return false;
  const Sequence* awaited = store_->Find(wait.awaited);
  return awaited != nullptr && PrefixesInFlight::IsComputing(*awaited, wait.num_tokens);
}

bool AdmissionControl::WaitsForPrefix(Sequence* sequence) {
  if (sequence->bypass_prefix_cache || !blocks_->caches_prefixes()) return false;
  InFlightWait& wait = sequence->in_flight;
  const bool awaits = AwaitsPrefix(*sequence);
  if (wait.num_steps == max_in_flight_steps_) {
    if (awaits) ++stats_->in_flight_timeouts;
    wait.num_tokens = 0;
    return false;
  }
  if (!awaits && !FindPrefix(*sequence, &wait)) return false;
  if (wait.num_steps++ == 0) ++stats_->in_flight_waits;
  return true;
}

bool AdmissionControl::FindPrefix(const Sequence& sequence, InFlightWait* wait) const {
  wait->num_tokens = 0;
  const PrefixesInFlight::Prefix prefix = prefixes_.Find(sequence);
  if (prefix.computing == nullptr) return false;
  if (blocks_->NumCachedTokens(sequence.blocks, sequence.tokens) >= prefix.num_tokens) return false;
  wait->awaited = prefix.computing->id;
  wait->num_tokens = prefix.num_tokens;
  return true;
}

std::int64_t AdmissionControl::BlocksToKeep() const {
  return store_->running().empty() ? 0 : watermark_blocks_;
}

}  // namespace quire::scheduler
