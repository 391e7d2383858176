// The determinism contract (docs/architecture.md), through the real engine: a request's token ids
// and log-probability bits do not depend on what else is in the batch, on how its prompt was
// chunked, on preemption, on the prefix cache or on the number of threads.
//
// Here with SmolLM2, as `quire serve` runs it.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/engine/determinism_runs.h"
#include "tests/engine/model/golden_data.h"

namespace quire::engine {
namespace {

class SmolLm2Determinism : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = fakes::SmolLm2Path();
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing: quire model fetch";
    plain_ = Plain(path);
  }
  HostOptions plain_;
};

TEST_F(SmolLm2Determinism, TheSameBitsHoweverARequestIsComputed) {
  const std::vector<GenerationRequest> measured = Workload(49152, 8, 50, 8, 1);
  std::vector<GenerationRequest> batch = measured;  // 32 in all.
  for (GenerationRequest& request : Workload(49152, 24, 60, 8, 1)) {
    batch.push_back(std::move(request));
  }
  const std::vector<Result> expected = Runner(plain_).OneByOne(measured);
  const auto first_of = [&](std::vector<Result> results) {
    results.resize(measured.size());
    return results;
  };
  {
    SCOPED_TRACE("a batch of 32");
    HostOptions options = Batched(plain_, 40);
    options.engine.scheduler.max_prefill_tokens = 100;
    ExpectSameBits(expected, first_of(Runner(options).AllAtOnce(batch)));
  }
  for (const std::int32_t chunk : {1, 7, 16, 64}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk);
    ExpectSameBits(expected, Runner(Chunked(plain_, chunk)).OneByOne(measured));
  }
  {
    SCOPED_TRACE("preemption and two threads");
    HostOptions options = Batched(plain_, 40);
    options.threads = 2;
    options.num_blocks = 20;
    const std::vector<Result> actual = Runner(options).AllAtOnce(batch);
    ExpectSameBits(expected, first_of(actual));
    EXPECT_GT(Preemptions(actual), 0);
  }
  {
    SCOPED_TRACE("the prefix cache");
    HostOptions options = Batched(plain_, 40);
    options.engine.enable_prefix_caching = true;
    Runner runner(options);
    ExpectSameBits(expected, runner.AllAtOnce(measured));
    const std::vector<Result> again = runner.AllAtOnce(measured);
    ExpectSameBits(expected, again);
    EXPECT_GT(CachedTokens(again), 0);
  }
}

}  // namespace
}  // namespace quire::engine
