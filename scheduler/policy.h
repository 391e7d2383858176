// Who goes first, and who has to go. The policy itself (fcfs or priority) is in
// Sequence::priority: under fcfs it is the same for all.
#pragma once

#include <span>

#include "scheduler/sequence.h"

namespace quire::scheduler {

// The order of the waiting queue and of unfinished prefills, a total one: priority class, preempted
// ones first, arrival, id.
bool GoesBefore(const Sequence& a, const Sequence& b);

// Seniority, a total order that preemption does not change: priority class, arrival, id. The most
// senior running sequence is never preempted, so it always gets on.
bool IsSeniorTo(const Sequence& a, const Sequence& b);

// The running sequence to preempt when blocks are short: of the lowest priority class, in it the
// one with the least computed tokens (least work lost), then the most junior. Never the most senior
// one, and none that is resuming. Null if that leaves nobody.
Sequence* ChooseVictim(std::span<Sequence* const> running);

}  // namespace quire::scheduler
