#include "simulator/simulation.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace quire::simulator {
namespace {

std::size_t At(std::int32_t index) { return static_cast<std::size_t>(index); }

// Integrals over time of what the steps of a window used.
class UseIntegrals {
 public:
  // `published` is the state that stood when the step began, `inside` the one while it computed.
  void Add(double seconds, const StepWork& work, const MemoryUse& published,
           const MemoryUse& inside) {
    seconds_ += seconds;
    capacity_ += seconds * static_cast<double>(published.capacity);
    reserved_ += seconds * static_cast<double>(published.reserved);
    useful_ += seconds * published.useful;
    unshared_ += seconds * static_cast<double>(published.unshared);
    reserved_inside_ += seconds * static_cast<double>(inside.reserved);
    useful_inside_ += seconds * inside.useful;
    sequences_ += seconds * static_cast<double>(work.num_sequences);
  }

  void Describe(SimulationResult* result) const {
    result->useful_share = Ratio(useful_, reserved_);
    result->useful_share_inside = Ratio(useful_inside_, reserved_inside_);
    result->pool_useful_share = Ratio(useful_, capacity_);
    result->saved_by_sharing = unshared_ > 0 ? 1 - reserved_ / unshared_ : 0;
    result->mean_batched = Ratio(sequences_, seconds_);
  }

 private:
  static double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

  double seconds_ = 0, capacity_ = 0, reserved_ = 0, useful_ = 0, unshared_ = 0;
  double reserved_inside_ = 0, useful_inside_ = 0, sequences_ = 0;
};

void AddCounters(const Counters& from, Counters* to) {
  to->preemptions += from.preemptions;
  to->prefill_tokens += from.prefill_tokens;
  to->decode_tokens += from.decode_tokens;
  to->recomputed_tokens += from.recomputed_tokens;
  to->prefix_query_tokens += from.prefix_query_tokens;
  to->prefix_hit_tokens += from.prefix_hit_tokens;
  to->hit_tokens_after_preemption += from.hit_tokens_after_preemption;
  to->copies_on_write += from.copies_on_write;
}

class Run {
 public:
  Run(const SimulationOptions& options, std::span<const Request> workload,
      const SystemMaker& make_system)
      : options_(options),
        workload_(workload),
        router_(options.routing, options.num_replicas),
        branches_left_(workload.size()),
        followers_(workload.size()) {
    for (std::int32_t i = 0; i < options.num_replicas; ++i) {
      replicas_.push_back({.system = make_system()});
    }
    result_.requests.resize(workload.size());
    for (std::size_t i = 0; i < workload.size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      if (workload[i].after == kNoRequest) {
        arrivals_.push({workload[i].arrival, index});
      } else {
        QUIRE_CHECK(workload[i].after < index) << "a request follows a later one";
        followers_[At(workload[i].after)].push_back(index);
      }
    }
  }

  // Everything that falls due at one moment is booked before any replica plans its next step.
  SimulationResult Finish() {
    while ((!arrivals_.empty() || !step_ends_.empty()) && !result_.given_up) {
      now_ = std::min(arrivals_.empty() ? absl::InfiniteDuration() : arrivals_.top().first,
                      step_ends_.empty() ? absl::InfiniteDuration() : step_ends_.top().first);
      while (!step_ends_.empty() && step_ends_.top().first == now_) {
        const std::int32_t replica = step_ends_.top().second;
        step_ends_.pop();
        EndStep(replica);
      }
      while (!arrivals_.empty() && arrivals_.top().first <= now_) {
        const std::int32_t request = arrivals_.top().second;
        arrivals_.pop();
        Arrive(request);
      }
      std::ranges::sort(idle_);
      for (const std::int32_t replica : idle_) BeginStep(replica);
      idle_.clear();
      result_.given_up = NumWaiting() > options_.give_up_waiting;
    }
    result_.duration = now_;
    for (const Replica& replica : replicas_) {
      AddCounters(replica.system->counters(), &result_.counters);
    }
    integrals_.Describe(&result_);
    return std::move(result_);
  }

 private:
  struct Replica {
    std::unique_ptr<ServingSystem> system;
    bool steps = false;  // Computes now.
    absl::Duration step_took = {};
    bool listed = false;  // In idle_.
  };
  // Earliest first, then by number.
  using Event = std::pair<absl::Duration, std::int32_t>;
  using EventQueue = std::priority_queue<Event, std::vector<Event>, std::greater<>>;

  absl::Time Time() const { return absl::UnixEpoch() + now_; }

  void ListIdle(std::int32_t index) {
    Replica& replica = replicas_[At(index)];
    if (!replica.steps && !std::exchange(replica.listed, true)) idle_.push_back(index);
  }

  void Arrive(std::int32_t index) {
    const Request& request = workload_[At(index)];
    RequestOutcome& outcome = result_.requests[At(index)];
    outcome.due = now_;
    outcome.prompt_tokens = request.prompt_len();
    branches_left_[At(index)] = request.num_branches;
    // All replicas are alike.
    const absl::Status fits = replicas_.front().system->CheckFits(request);
    if (!fits.ok()) {
      if (result_.first_refusal.empty()) result_.first_refusal = AsStd(fits.message());
      End(index, RequestOutcome::End::kRefused);
      return;
    }
    std::vector<TokenId> prompt = request.PromptTokens();
    outcome.replica = router_.Route(prompt);
    replicas_[At(outcome.replica)].system->Add(index, request, std::move(prompt), Time());
    ListIdle(outcome.replica);
  }

  void BeginStep(std::int32_t index) {
    Replica& replica = replicas_[At(index)];
    replica.listed = false;
    const MemoryUse published = replica.system->memory();
    StepWork work;
    while (work.empty() && replica.system->has_work()) {
      happenings_.clear();
      work = replica.system->BeginStep(Time(), &happenings_);
      QUIRE_CHECK(!work.empty() || !happenings_.empty()) << "no progress while work is left";
      Book(index);
    }
    if (work.empty()) return;
    const absl::Duration took = std::max(options_.step_time.Of(work), absl::Nanoseconds(1));
    replica.steps = true;
    replica.step_took = took;
    step_ends_.push({now_ + took, index});
    ++result_.num_steps;
    result_.busy_s += absl::ToDoubleSeconds(took);
    result_.peak_batched = std::max(result_.peak_batched, work.num_sequences);
    const MemoryUse inside = replica.system->memory();
    if (now_ >= options_.measure_from && now_ < options_.measure_until) {
      integrals_.Add(absl::ToDoubleSeconds(took), work, published, inside);
    }
    if (index == 0) AddToTimeline(work, inside);
  }

  void AddToTimeline(const StepWork& work, const MemoryUse& memory) {
    if (first_replica_steps_++ % timeline_stride_ != 0) return;
    std::vector<TimelinePoint>& timeline = result_.timeline;
    if (timeline.size() == SimulationResult::kMaxTimeline) {
      for (std::size_t i = 0; 2 * i < timeline.size(); ++i) timeline[i] = timeline[2 * i];
      timeline.resize(timeline.size() / 2);
      timeline_stride_ *= 2;
    }
    timeline.push_back({.seconds = absl::ToDoubleSeconds(now_),
                        .num_sequences = work.num_sequences,
                        .num_waiting = replicas_.front().system->num_waiting(),
                        .memory = memory});
  }

  void EndStep(std::int32_t index) {
    Replica& replica = replicas_[At(index)];
    replica.steps = false;
    happenings_.clear();
    replica.system->EndStep(replica.step_took, &happenings_);
    Book(index);
    if (replica.system->has_work()) ListIdle(index);
  }

  void Book(std::int32_t replica) {
    for (const Happening& happening : happenings_) {
      RequestOutcome& outcome = result_.requests[At(happening.request)];
      switch (happening.kind) {
        case Happening::Kind::kAdmitted:
          outcome.admitted = now_;
          outcome.cached_tokens = happening.num_cached_tokens;
          break;
        case Happening::Kind::kToken:
          if (outcome.output_tokens++ == 0) outcome.first_token = now_;
          outcome.last_token = now_;
          break;
        case Happening::Kind::kFinished:
        case Happening::Kind::kEndedEarly: {
          const bool early = happening.kind == Happening::Kind::kEndedEarly;
          if (early) outcome.end = RequestOutcome::End::kEndedEarly;
          if (--branches_left_[At(happening.request)] > 0) break;
          router_.Ended(replica);
          End(happening.request, outcome.end == RequestOutcome::End::kEndedEarly
                                     ? RequestOutcome::End::kEndedEarly
                                     : RequestOutcome::End::kFinished);
          break;
        }
      }
    }
  }

  void End(std::int32_t index, RequestOutcome::End end) {
    result_.requests[At(index)].end = end;
    for (const std::int32_t follower : followers_[At(index)]) {
      arrivals_.push({now_ + workload_[At(follower)].arrival, follower});
    }
  }

  std::int64_t NumWaiting() const {
    if (options_.give_up_waiting == std::numeric_limits<std::int64_t>::max()) return 0;
    std::int64_t waiting = 0;
    for (const Replica& replica : replicas_) waiting += replica.system->num_waiting();
    return waiting;
  }

  const SimulationOptions& options_;
  const std::span<const Request> workload_;
  Router router_;
  std::vector<Replica> replicas_;
  std::vector<std::int32_t> branches_left_;           // By request.
  std::vector<std::vector<std::int32_t>> followers_;  // By request: the turns after it.
  EventQueue arrivals_;                               // Of requests.
  EventQueue step_ends_;                              // Of replicas.
  std::vector<std::int32_t> idle_;                    // Replicas that may begin a step.
  absl::Duration now_ = absl::ZeroDuration();
  std::int64_t first_replica_steps_ = 0;
  std::int64_t timeline_stride_ = 1;
  UseIntegrals integrals_;
  SimulationResult result_;
  std::vector<Happening> happenings_;  // Scratch.
};

}  // namespace

double SimulationResult::MeanNormalizedLatency(std::span<const Request> workload) const {
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].end != RequestOutcome::End::kFinished) continue;
    sum += requests[i].latency_s() / workload[i].output_len;
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

double SimulationResult::RecomputeTax() const {
  const std::int64_t needed =
      counters.prefill_tokens + counters.decode_tokens - counters.recomputed_tokens;
  return needed == 0
             ? 0
             : static_cast<double>(counters.recomputed_tokens) / static_cast<double>(needed);
}

SimulationResult Simulate(const SimulationOptions& options, std::span<const Request> workload,
                          const SystemMaker& make_system) {
  return Run(options, workload, make_system).Finish();
}

}  // namespace quire::simulator
