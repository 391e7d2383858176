// Who goes first, and who has to go. The policy itself (fcfs or priority) is in
// Sequence::priority: under fcfs it is the same for all.
#pragma once

#include <span>

#include "scheduler/sequence.h"

namespace quire::scheduler {

// The order of the waiting queue and of unfinished prefills, a total one: priority class, preempted
// ones first, the client's turn (if clients share), arrival, id.
bool GoesBefore(const Sequence& a, const Sequence& b);

// Seniority, a total order that preemption does not change: priority class, arrival, id. The most
// senior running sequence is never preempted, so it always gets on.
bool IsSeniorTo(const Sequence& a, const Sequence& b);

// The order of preemption: the lowest priority class first, in it the least computed tokens (least
// work lost), then the most junior.
bool IsBetterVictim(const Sequence& a, const Sequence& b);

// The running sequence to preempt when blocks are short: the best victim, but never the most senior
// one, and none that is resuming. Null if that leaves nobody.
Sequence* ChooseVictim(std::span<Sequence* const> running);

}  // namespace quire::scheduler
