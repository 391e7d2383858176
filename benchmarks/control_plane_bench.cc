// Block manager and scheduler by themselves: no model, one thread, steady state.
// build/release/benchmarks/control_plane_bench --benchmark_format=json
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

using block_manager::BlockManager;
using block_manager::BlockPool;
using block_manager::BlockRef;
using block_manager::SequenceBlocks;
using block_manager::Verdict;

class NoObserver final : public BlockPool::EvictionObserver {
  void OnEvict(BlockId) override {}
};

// Time per block of allocating and giving back range(0) blocks.
void BM_AllocateAndFree(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  NoObserver observer;
  BlockPool pool(1 << 16, &observer);
  std::vector<BlockRef> blocks(count);
  for (auto _ : state) {
    if (!pool.Allocate(blocks)) return state.SkipWithError("the pool is too small");
    for (BlockRef& block : blocks) block = BlockRef();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_AllocateAndFree)->Arg(1)->Arg(64)->Arg(4096);

// A prompt of range(0) tokens whose blocks are all cached.
void BM_PrefixMatch(benchmark::State& state) {
  BlockManager manager({.num_blocks = 1 << 16});
  std::vector<TokenId> prompt(static_cast<std::size_t>(state.range(0)));
  std::iota(prompt.begin(), prompt.end(), 0);
  SequenceBlocks sequence = manager.NewSequence({});
  if (manager.Admit(&sequence, prompt, {}) != Verdict::kNow) return state.SkipWithError("no room");
  manager.Commit(&sequence, prompt, static_cast<std::int32_t>(prompt.size()));
  const std::size_t expected = (prompt.size() - 1) / 16;
  if (manager.Match(sequence, prompt).size() != expected) return state.SkipWithError("no hit");
  for (auto _ : state) benchmark::DoNotOptimize(manager.Match(sequence, prompt));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(expected));
}
BENCHMARK(BM_PrefixMatch)->Arg(1'000)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMicrosecond);

// One step, Schedule and Apply, with range(0) decoding sequences and range(1) waiting ones.
void BM_DecodeStep(benchmark::State& state) {
  const auto num_running = static_cast<std::int32_t>(state.range(0));
  constexpr std::int32_t kPrompt = 32, kMaxTokens = 2048;
  scheduler::SchedulerOptions options{.max_num_seqs = num_running,
                                      .max_num_batched_tokens = num_running * kPrompt,
                                      .max_prefill_tokens = num_running * kPrompt,
                                      .max_model_len = kMaxTokens};
  std::unique_ptr<BlockManager> blocks;
  std::unique_ptr<scheduler::Scheduler> scheduler;
  scheduler::StepResult result;
  const auto start = [&] {
    scheduler.reset();
    blocks = std::make_unique<BlockManager>(
        block_manager::BlockManagerOptions{.num_blocks = num_running * (kMaxTokens / 16)});
    scheduler = std::make_unique<scheduler::Scheduler>(options, blocks.get());
    result.sequences.clear();
    for (std::int64_t i = 0; i < state.range(0) + state.range(1); ++i) {
      scheduler::NewSequence sequence{
          .id = SequenceId{static_cast<std::uint64_t>(i) + 1}, .forks = {}, .prompt = {}};
      sequence.prompt.assign(kPrompt, static_cast<TokenId>(i));
      sequence.max_total_tokens = kMaxTokens;
      sequence.arrival = absl::FromUnixMicros(i);
      if (i < state.range(0)) result.sequences.push_back({sequence.id, {1}, false});
      scheduler->Add(std::move(sequence));
    }
    scheduler->Schedule(absl::UnixEpoch());
    scheduler->Apply(result);
  };
  std::int32_t num_tokens = kMaxTokens;
  for (auto _ : state) {
    if (num_tokens + 1 >= kMaxTokens) {
      state.PauseTiming();
      start();
      num_tokens = kPrompt + 1;
      state.ResumeTiming();
    }
    const scheduler::StepPlan& plan = scheduler->Schedule(absl::UnixEpoch());
    if (plan.num_tokens != num_running) return state.SkipWithError("not all sequences decode");
    scheduler->Apply(result);
    ++num_tokens;
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_DecodeStep)
    ->Args({1, 0})
    ->Args({256, 0})
    ->Args({4096, 10'000})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
