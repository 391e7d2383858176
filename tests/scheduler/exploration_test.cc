// Every state that small worlds can reach, in every order of arrivals, steps, endings,
// cancellations and deadlines: up to four blocks and three requests, with the real scheduler and
// block manager. In each state everything adds up (see ExploredWorld), and from each of them steps
// alone lead to the end, soon enough.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/status.h"
#include "tests/scheduler/exploration_world.h"

namespace quire::scheduler {
namespace {

struct Happening {
  const char* name;
  std::int64_t Happenings::*count;
};
constexpr Happening kHappenings[] = {
    {"preemptions", &Happenings::preemptions},
    {"hit tokens", &Happenings::hits},
    {"hit tokens after preemption", &Happenings::hits_after_preemption},
    {"evictions", &Happenings::evictions},
    {"copies on write", &Happenings::copies_on_write},
    {"outgrown pools", &Happenings::outgrown},
    {"expired deadlines", &Happenings::expired},
    {"overtakings", &Happenings::overtakings},
};

// Breadth first, so that the way to a failure is a shortest one.
class Exploration {
 public:
  explicit Exploration(const SmallWorld& world) : world_(world) {
    current_ = this;
    std::signal(SIGABRT, [](int) { std::fputs(current_->WayHere().c_str(), stderr); });
  }
  ~Exploration() { std::signal(SIGABRT, SIG_DFL); }

  void Run() {
    ExploredWorld start(world_);
    Visit(&start, kNone, {});
    for (std::int32_t state = 0; state < num_states() && !testing::Test::HasFailure(); ++state) {
      const std::vector<Action> actions = std::exchange(states_[Index(state)].next_actions, {});
      for (const Action& action : actions) Try(state, action);
    }
    if (!testing::Test::HasFailure()) FindTheLongestWayToTheEnd();
    if (!testing::Test::HasFailure()) CheckThatOtherWaysGoOnAlike();
  }

  std::int32_t num_states() const { return static_cast<std::int32_t>(states_.size()); }
  std::int64_t num_transitions() const { return num_transitions_; }
  // The most steps that any state is away from the end.
  int max_steps_to_the_end() const { return max_steps_to_the_end_; }
  // Summed over the last actions of all that was tried.
  const Happenings& happenings() const { return happenings_; }

 private:
  static constexpr std::int32_t kNone = -1;
  struct State {
    std::int32_t parent = kNone;
    Action action;                    // That led here from the parent.
    std::int32_t after_step = kNone;  // Where a step leads with which nobody chooses to finish.
    bool drained = false;
    std::vector<Action> next_actions;  // Until they are tried.
  };

  // Another way to a state than the one that is kept.
  struct OtherWay {
    std::int32_t from;
    Action action;
    std::int32_t to;
  };

  static std::size_t Index(std::int32_t state) { return static_cast<std::size_t>(state); }

  // A step is tried once for each choice of who finishes with it.
  void Try(std::int32_t from, Action action) {
    int num_choices = 0;
    do {
      const std::int32_t to = TryOne(from, action, &num_choices);
      if (to == kNone) return;
      if (action.kind == Action::Kind::kStep && action.argument == 0) {
        states_[Index(from)].after_step = to;
      }
    } while (action.kind == Action::Kind::kStep && ++action.argument < 1 << num_choices);
  }

  std::int32_t TryOne(std::int32_t from, const Action& action, int* num_choices) {
    SetWayTo(from);
    way_.push_back(action);
    ++num_transitions_;
    ExploredWorld world(world_);
    Happenings before;
    for (const Action& next : way_) {
      before = world.happenings();
      if (!Do(next, &world)) return kNone;
    }
    Count(before, world.happenings());
    *num_choices = world.num_choices();
    return Visit(&world, from, action);
  }

  bool Do(const Action& action, ExploredWorld* world) const {
    const absl::Status status = world->Do(action);
    if (!status.ok()) ADD_FAILURE() << AsStd(status.message()) << WayHere();
    return status.ok();
  }

  std::int32_t Visit(ExploredWorld* world, std::int32_t from, const Action& action) {
    State state{.parent = from,
                .action = action,
                .drained = world->drained(),
                .next_actions = world->NextActions()};
    const auto [found, is_new] = state_of_digest_.try_emplace(world->TakeDigest(), num_states());
    if (is_new) {
      states_.push_back(std::move(state));
    } else {
      other_ways_.push_back({from, action, found->second});
    }
    return found->second;
  }

  // Steps must lead on, never in a circle.
  void FindTheLongestWayToTheEnd() {
    constexpr int kUnknown = -1, kOnTheWay = -2;
    std::vector<int> distances(states_.size(), kUnknown);
    for (std::int32_t start = 0; start < num_states(); ++start) {
      std::vector<std::int32_t> way;
      std::int32_t state = start;
      while (!states_[Index(state)].drained && distances[Index(state)] == kUnknown) {
        distances[Index(state)] = kOnTheWay;
        way.push_back(state);
        state = states_[Index(state)].after_step;
      }
      if (distances[Index(state)] == kOnTheWay) {
        SetWayTo(state);
        ADD_FAILURE() << "steps lead in a circle" << WayHere();
        return;
      }
      int distance = states_[Index(state)].drained ? 0 : distances[Index(state)];
      for (; !way.empty(); way.pop_back()) distances[Index(way.back())] = ++distance;
      max_steps_to_the_end_ = std::max(max_steps_to_the_end_, distance);
    }
  }

  // What the digest leaves out must not matter: checked for some of the ways, with one step.
  void CheckThatOtherWaysGoOnAlike() {
    constexpr std::size_t kOneOf = 4;
    for (std::size_t i = 0; i < other_ways_.size(); i += kOneOf) {
      const OtherWay& other = other_ways_[i];
      if (states_[Index(other.to)].drained) continue;
      SetWayTo(other.from);
      way_.push_back(other.action);
      way_.push_back({Action::Kind::kStep});
      ExploredWorld world(world_);
      for (const Action& next : way_) {
        if (!Do(next, &world)) return;
      }
      const auto found = state_of_digest_.find(world.TakeDigest());
      if (found == state_of_digest_.end() || found->second != states_[Index(other.to)].after_step) {
        ADD_FAILURE() << "the digest leaves out something that matters" << WayHere();
        return;
      }
    }
  }

  void Count(const Happenings& before, const Happenings& after) {
    for (const auto [name, count] : kHappenings) {
      happenings_.*count += after.*count - before.*count;
    }
  }

  void SetWayTo(std::int32_t state) {
    way_.clear();
    for (; states_[Index(state)].parent != kNone; state = states_[Index(state)].parent) {
      way_.push_back(states_[Index(state)].action);
    }
    std::ranges::reverse(way_);
  }
  std::string WayHere() const {
    std::string text = fmt::format("\nin the world \"{}\", after", world_.name);
    for (const Action& action : way_) text += "\n  " + Name(action);
    return text + "\n";
  }

  // For a failed check, which ends the process, to say where.
  static inline const Exploration* current_ = nullptr;

  const SmallWorld& world_;
  std::vector<State> states_;
  absl::flat_hash_map<std::string, std::int32_t> state_of_digest_;
  std::vector<OtherWay> other_ways_;
  std::vector<Action> way_;  // To what is done now.
  std::int64_t num_transitions_ = 0;
  Happenings happenings_;
  int max_steps_to_the_end_ = 0;
};

std::uint64_t AlwaysCollides(const block_manager::PrefixKey&, std::uint64_t) { return 7; }

// Requests that meet in some interesting way.
struct Meeting {
  std::string name;
  std::vector<SmallRequest> requests;
};

std::vector<Meeting> Meetings() {
  const std::vector<TokenId> one = {10}, three = {20, 21, 22}, five = {30, 31, 32, 33, 34};
  const std::vector<TokenId> twig = {20, 21, 23}, branch = {20, 21, 22, 23, 24};
  return {
      {"three small", {{one, 5}, {{12}, 5}, {{14, 15}, 4}}},
      {"small, middle and large", {{one, 4}, {three, 4}, {five, 4}}},
      {"two that outgrow the pool", {{five, 6}, {{40, 41, 42, 43, 44}, 6}, {one, 2}}},
      {"same prompts", {{branch, 3}, {branch, 3}, {branch, 3}}},
      {"shared prefixes", {{three, 4}, {twig, 4}, {branch, 4}}},
      {"a salt, a bypass",
       {{three, 3},
        {.prompt = three, .max_outputs = 4, .salt = "s"},
        {.prompt = branch, .max_outputs = 4, .bypass_prefix_cache = true}}},
      {"two branches", {{three, 3, 2}, {branch, 4}, {one, 3}}},
      {"two and two branches", {{three, 4, 2}, {one, 4, 2}}},
  };
}

// A way to run them; the first is four blocks of two slots, three sequences at a time.
struct Variant {
  std::string name;
  void (*apply)(SmallWorld*);
};

std::vector<Variant> Variants() {
  return {
      {"as it is", [](SmallWorld*) {}},
      {"without prefix caching", [](SmallWorld* w) { w->blocks.enable_prefix_caching = false; }},
      {"priorities",
       [](SmallWorld* w) {
         w->scheduler.policy = Policy::kPriority;
         std::int32_t priority = 3;
         for (SmallRequest& request : w->requests) request.priority = --priority / 2;
       }},
      {"deadlines",
       [](SmallWorld* w) {
         for (SmallRequest& request : w->requests) request.has_deadline = true;
       }},
      {"failing steps", [](SmallWorld* w) { w->steps_may_fail = true; }},
      {"resets", [](SmallWorld* w) { w->cache_may_be_reset = true; }},
      {"deadlines, failing steps, resets, priorities",
       [](SmallWorld* w) {
         for (SmallRequest& request : w->requests) request.has_deadline = true;
         w->steps_may_fail = true;
         w->cache_may_be_reset = true;
         w->scheduler.policy = Policy::kPriority;
         w->requests.back().priority = -1;
       }},
      {"small chunks",
       [](SmallWorld* w) {
         w->scheduler.max_num_batched_tokens = 4;
         w->scheduler.max_prefill_tokens = 1;
       }},
      {"two slots", [](SmallWorld* w) { w->scheduler.max_num_seqs = 2; }},
      {"a watermark", [](SmallWorld* w) { w->scheduler.watermark = 0.25; }},
      {"no overtaking", [](SmallWorld* w) { w->scheduler.max_overtakes = 0; }},
      {"colliding hashes", [](SmallWorld* w) { w->blocks.hash = AlwaysCollides; }},
      {"three blocks of two", [](SmallWorld* w) { w->blocks.num_blocks = 3; }},
      {"four blocks of four", [](SmallWorld* w) { w->blocks.block_size = 4; }},
      {"two blocks of four", [](SmallWorld* w) { w->blocks = {.num_blocks = 2, .block_size = 4}; }},
  };
}

SmallWorld WorldOf(const Meeting& meeting, const Variant& variant) {
  SmallWorld world{.name = fmt::format("{}, {}", meeting.name, variant.name),
                   .blocks = {.num_blocks = 4, .block_size = 2},
                   .scheduler = {.max_num_seqs = 4,
                                 .max_num_batched_tokens = 8,
                                 .max_prefill_tokens = 4,
                                 .max_model_len = 16,
                                 .watermark = 0,
                                 .max_overtakes = 1},
                   .requests = meeting.requests};
  variant.apply(&world);
  return world;
}

// Steps that would do if every branch ran alone, one after the other.
int StepsOneByOne(const SmallWorld& world) {
  std::int32_t steps = 0;
  for (const SmallRequest& request : world.requests) {
    const auto length = static_cast<std::int32_t>(request.prompt.size());
    const std::int32_t chunk = world.scheduler.max_prefill_tokens;
    steps += request.num_branches * ((length + chunk - 1) / chunk + request.max_outputs);
  }
  return steps;
}

TEST(Exploration, EveryStateIsSoundAndLeadsToTheEnd) {
  std::int64_t all_states = 0, all_transitions = 0;
  Happenings happenings;
  for (const Meeting& meeting : Meetings()) {
    std::int64_t states = 0, transitions = 0;
    int max_steps = 0;
    for (const Variant& variant : Variants()) {
      const SmallWorld world = WorldOf(meeting, variant);
      ASSERT_EQ(world.blocks.Validate(), absl::OkStatus());
      ASSERT_EQ(world.scheduler.Validate(), absl::OkStatus());
      Exploration exploration(world);
      exploration.Run();
      if (HasFailure()) return;
      EXPECT_LE(exploration.max_steps_to_the_end(), StepsOneByOne(world)) << world.name;
      states += exploration.num_states();
      transitions += exploration.num_transitions();
      max_steps = std::max(max_steps, exploration.max_steps_to_the_end());
      for (const auto [name, count] : kHappenings) {
        happenings.*count += exploration.happenings().*count;
      }
    }
    fmt::print("{:<26}{:>8} states{:>9} transitions, at most {:>2} steps from the end\n",
               meeting.name, states, transitions, max_steps);
    all_states += states;
    all_transitions += transitions;
  }
  fmt::print("{:<26}{:>8} states{:>9} transitions\n", "in all", all_states, all_transitions);
  EXPECT_GT(all_states, 50'000);
  for (const auto [name, count] : kHappenings) {
    fmt::print("{:>8} {}\n", happenings.*count, name);
    EXPECT_GT(happenings.*count, 500) << name;
  }
}

}  // namespace
}  // namespace quire::scheduler
