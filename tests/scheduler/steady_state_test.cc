// A step in which every sequence only decodes costs no heap allocation per token: counted by a
// global operator new of this binary.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "scheduler/scheduler.h"

namespace {

std::atomic<std::int64_t> num_allocations{0};

void* CountedAllocate(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Out of line, or GCC takes malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t size) { return CountedAllocate(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return CountedAllocate(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace quire::scheduler {
namespace {

constexpr int kSequences = 64, kSteps = 512;

// All of max_num_seqs decode, and others wait.
void ExpectNoAllocationPerToken(const SchedulerOptions& options, int num_waiting) {
  block_manager::BlockManager blocks({.num_blocks = 4096});
  Scheduler scheduler(options, &blocks);
  for (int i = 0; i < kSequences + num_waiting; ++i) {
    NewSequence sequence{.id = SequenceId{static_cast<std::uint64_t>(i) + 1}};
    sequence.prompt.assign(16, static_cast<TokenId>(i));
    sequence.max_total_tokens = 2 * kSteps;
    sequence.arrival = absl::FromUnixMicros(i);
    sequence.client_id = std::to_string(i % 3);
    scheduler.Add(std::move(sequence));
  }
  StepResult result;
  const StepPlan& first = scheduler.Schedule(absl::UnixEpoch());
  for (const ScheduledSequence& s : first.scheduled) result.sequences.push_back({s.id, {1}, false});
  scheduler.Apply(result);
  const auto step = [&] {
    const StepPlan& plan = scheduler.Schedule(absl::UnixEpoch());
    ASSERT_EQ(plan.scheduled.size(), static_cast<std::size_t>(kSequences));
    scheduler.Apply(result);
    scheduler.StepTook(absl::Milliseconds(1));
  };
  for (int i = 0; i < 3; ++i) step();

  // Token lists and block tables double now and then: logarithmically many times, not per token.
  const std::int64_t before = num_allocations;
  for (int i = 0; i < kSteps; ++i) step();
  const std::int64_t allocations = num_allocations - before;
  EXPECT_LE(allocations, kSequences * 24);
  EXPECT_LT(static_cast<double>(allocations) / (kSequences * kSteps), 0.05);

  // Between two doublings there is none at all.
  const std::int64_t quiet_before = num_allocations;
  for (int i = 0; i < 8; ++i) step();
  EXPECT_EQ(num_allocations - quiet_before, 0);
}

TEST(SteadyState, DecodingAllocatesNothingPerToken) {
  ExpectNoAllocationPerToken({.max_num_seqs = kSequences}, 0);
}

TEST(SteadyState, NorDoesItWithAQueueAndEverythingSwitchedOn) {
  ExpectNoAllocationPerToken({.max_num_seqs = kSequences,
                              .policy = Policy::kPriority,
                              .client_quantum = 64,
                              .target_itl = absl::Milliseconds(50),
                              .sliding_window = 100},
                             500);
}

}  // namespace
}  // namespace quire::scheduler
