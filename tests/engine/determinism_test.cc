// The determinism contract (docs/architecture.md), through the real engine: a request's token ids
// and log-probability bits do not depend on what else is in the batch, on how its prompt was
// chunked, on preemption, on the prefix cache or on the number of threads.
//
// Here with the toy model, in every weight format and ISA level of the CPU backend.
#include <gtest/gtest.h>

#include <ostream>

#include "kernels/cpu/cpu_features.h"
#include "tests/engine/determinism_runs.h"
#include "tests/fakes/file_writers.h"
#include "tests/fakes/toy_model.h"

namespace quire::engine {
namespace {

struct Level {
  std::string isa, matrix_type;  // isa: empty for the best of this machine.
};
void PrintTo(const Level& level, std::ostream* out) {
  *out << (level.isa.empty() ? "best" : level.isa) << " " << level.matrix_type;
}

class ToyDeterminism : public ::testing::TestWithParam<Level> {
 protected:
  void SetUp() override {
    const Level& level = GetParam();
    fakes::ToyOptions toy;
    toy.matrix_type = level.matrix_type;
    plain_ = Plain(fakes::ToyModel(toy).WriteGguf(folder_.path()));
    plain_.isa = level.isa;
    if (!kernels::cpu::SelectIsa(level.isa).ok()) GTEST_SKIP() << "this machine lacks the level";
    expected_ = Runner(plain_).OneByOne(workload_);
  }

  fakes::TempFolder folder_;
  HostOptions plain_;
  const std::vector<GenerationRequest> workload_ = Workload(300, 32, 120, 24, 2);
  std::vector<Result> expected_;
};

TEST_P(ToyDeterminism, C117_ABatchOf32) {
  ExpectSameBits(expected_, Runner(Batched(plain_, 40)).AllAtOnce(workload_));
}

TEST_P(ToyDeterminism, PrefillInChunks) {
  for (const std::int32_t chunk : {7, 16, 64}) {
    SCOPED_TRACE(chunk);
    ExpectSameBits(expected_, Runner(Chunked(plain_, chunk)).OneByOne(workload_));
  }
}

TEST_P(ToyDeterminism, PrefillTokenByToken) {
  // A budget of one token is one sequence: no second branch.
  std::vector<GenerationRequest> single;
  std::vector<Result> expected;
  for (std::size_t i = 0; i < workload_.size(); ++i) {
    if (workload_[i].sampling.n > 1) continue;
    single.push_back(workload_[i]);
    expected.push_back(expected_[i]);
  }
  ExpectSameBits(expected, Runner(Chunked(plain_, 1)).OneByOne(single));
}

TEST_P(ToyDeterminism, C126_PrefillInChunksBesideDecodes) {
  HostOptions options = Batched(plain_, 40);
  options.engine.scheduler.max_num_batched_tokens = 61;
  options.engine.scheduler.max_prefill_tokens = 13;
  ExpectSameBits(expected_, Runner(options).AllAtOnce(workload_));
}

TEST_P(ToyDeterminism, Preemption) {
  for (const bool cache : {false, true}) {
    HostOptions options = Batched(plain_, 40);
    options.num_blocks = 30;
    options.engine.enable_prefix_caching = cache;
    const std::vector<Result> actual = Runner(options).AllAtOnce(workload_);
    ExpectSameBits(expected_, actual);
    EXPECT_GT(Preemptions(actual), 0) << "the case must preempt at all";
  }
}

TEST_P(ToyDeterminism, ThePrefixCache) {
  HostOptions options = Batched(plain_, 40);
  options.engine.enable_prefix_caching = true;
  Runner runner(options);
  ExpectSameBits(expected_, runner.AllAtOnce(workload_));
  const std::vector<Result> again = runner.OneByOne(workload_);
  ExpectSameBits(expected_, again);
  EXPECT_GT(CachedTokens(again), 500) << "the case must read the cache at all";
}

TEST_P(ToyDeterminism, TwoThreads) {
  HostOptions options = Batched(plain_, 40);
  options.threads = 2;
  options.engine.scheduler.max_prefill_tokens = 50;
  ExpectSameBits(expected_, Runner(options).AllAtOnce(workload_));
}

TEST_P(ToyDeterminism, AnyBlockSize) {
  for (const std::int32_t block_size : {1, 4, 64, 256}) {
    SCOPED_TRACE(block_size);
    HostOptions options = Batched(plain_, 40);
    options.block_size = block_size;
    options.num_blocks = 16384 / block_size;
    ExpectSameBits(expected_, Runner(options).AllAtOnce(workload_));
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ToyDeterminism,
                         ::testing::Values(Level{"", "F32"}, Level{"", "BF16"}, Level{"", "Q8_0"},
                                           Level{"", "Q4_1"}, Level{"avx2", "Q4_1"},
                                           Level{"avx512", "Q4_1"}));

}  // namespace
}  // namespace quire::engine
