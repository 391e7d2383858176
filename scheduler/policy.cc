#include "scheduler/policy.h"

#include <algorithm>
#include <tuple>

namespace quire::scheduler {

bool IsBetterVictim(const Sequence& a, const Sequence& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.num_computed_tokens() != b.num_computed_tokens()) {
    return a.num_computed_tokens() < b.num_computed_tokens();
  }
  return IsSeniorTo(b, a);
}

bool GoesBefore(const Sequence& a, const Sequence& b) {
  const bool a_is_new = !a.resuming, b_is_new = !b.resuming;
  return std::tie(a.priority, a_is_new, a.turn, a.arrival, a.id) <
         std::tie(b.priority, b_is_new, b.turn, b.arrival, b.id);
}

bool IsSeniorTo(const Sequence& a, const Sequence& b) {
  return std::tie(a.priority, a.arrival, a.id) < std::tie(b.priority, b.arrival, b.id);
}

Sequence* ChooseVictim(std::span<Sequence* const> running) {
  if (running.empty()) return nullptr;
  const Sequence* senior = *std::ranges::min_element(
      running, [](const Sequence* a, const Sequence* b) { return IsSeniorTo(*a, *b); });
  Sequence* victim = nullptr;
  for (Sequence* candidate : running) {
    if (candidate == senior || candidate->resuming) continue;
    if (victim == nullptr || IsBetterVictim(*candidate, *victim)) victim = candidate;
  }
  return victim;
}

}  // namespace quire::scheduler
