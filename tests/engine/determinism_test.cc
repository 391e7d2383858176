// The determinism contract (docs/architecture.md), through the real engine: a request's token ids
// and log-probability bits do not depend on what else is in the batch, on how its prompt was
// chunked, on preemption, on the prefix cache or on the number of threads.
//
// Each run below is compared with the plainest one: one request at a time, whole prompt, no cache,
// one thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <string>
#include <vector>

#include "base/philox.h"
#include "engine/host.h"
#include "kernels/cpu/cpu_features.h"
#include "tests/engine/engine_harness.h"
#include "tests/engine/model/golden_data.h"
#include "tests/fakes/collecting_sink.h"
#include "tests/fakes/file_writers.h"
#include "tests/fakes/toy_model.h"

namespace quire::engine {
namespace {

using Ids = std::vector<TokenId>;

// What must be equal, log-probabilities as their bits.
struct Result {
  absl::Status status;
  std::vector<Ids> token_ids;                            // [branch]
  std::vector<std::vector<std::uint32_t>> logprob_bits;  // [branch] chosen and top, in order
  std::vector<std::uint32_t> prompt_logprob_bits;
  std::int32_t cached_tokens = 0;
  std::int32_t num_preemptions = 0;
};

void AppendBits(const sampling::PositionLogprobs& position, std::vector<std::uint32_t>& bits) {
  bits.push_back(std::bit_cast<std::uint32_t>(position.chosen.logprob));
  bits.push_back(static_cast<std::uint32_t>(position.chosen.rank));
  for (const sampling::RankedLogprob& entry : position.top) {
    bits.push_back(static_cast<std::uint32_t>(entry.token));
    bits.push_back(std::bit_cast<std::uint32_t>(entry.logprob));
  }
}

Result ToResult(const fakes::Answer& answer) {
  Result result;
  result.status = answer.terminal.value_or(absl::UnknownError("no terminal status"));
  for (const sampling::PositionLogprobs& position : answer.prompt_logprobs) {
    AppendBits(position, result.prompt_logprob_bits);
  }
  for (const auto& [index, branch] : answer.branches) {
    result.token_ids.push_back(branch.token_ids);
    std::vector<std::uint32_t>& bits = result.logprob_bits.emplace_back();
    for (const sampling::PositionLogprobs& position : branch.logprobs) AppendBits(position, bits);
    if (branch.finished) result.num_preemptions += branch.finished->timings.num_preemptions;
  }
  if (answer.accepted) result.cached_tokens = answer.accepted->cached_tokens;
  return result;
}

void ExpectSameBits(const std::vector<Result>& expected, const std::vector<Result>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    ASSERT_TRUE(actual[i].status.ok()) << actual[i].status;
    EXPECT_EQ(actual[i].token_ids, expected[i].token_ids);
    EXPECT_EQ(actual[i].logprob_bits, expected[i].logprob_bits);
    EXPECT_EQ(actual[i].prompt_logprob_bits, expected[i].prompt_logprob_bits);
  }
}

// One request at a time, whole prompts, no cache, one thread.
HostOptions Plain(const std::string& model_path) {
  HostOptions options;
  options.model_path = model_path;
  options.threads = 1;
  options.num_blocks = 256;
  options.max_model_len = 512;
  options.engine.enable_prefix_caching = false;
  options.engine.scheduler.max_num_seqs = 2;  // For two branches.
  options.engine.scheduler.max_num_batched_tokens = 512;
  options.engine.scheduler.max_prefill_tokens = 512;
  return options;
}

HostOptions Batched(HostOptions options, std::int32_t num_sequences) {
  options.engine.scheduler.max_num_seqs = num_sequences;
  return options;
}

HostOptions Chunked(HostOptions options, std::int32_t chunk) {
  options.engine.scheduler.max_num_seqs = std::min(chunk, options.engine.scheduler.max_num_seqs);
  options.engine.scheduler.max_num_batched_tokens = chunk;
  options.engine.scheduler.max_prefill_tokens = chunk;
  return options;
}

class Runner {
 public:
  explicit Runner(const HostOptions& options) {
    auto host = StartEngine(options, &sink_, {});
    EXPECT_TRUE(host.ok()) << host.status();
    if (host.ok()) host_ = *std::move(host);
  }

  std::vector<Result> OneByOne(const std::vector<GenerationRequest>& requests) {
    std::vector<Result> results;
    for (const GenerationRequest& request : requests) {
      results.push_back(AllAtOnce({request}).front());
    }
    return results;
  }

  std::vector<Result> AllAtOnce(const std::vector<GenerationRequest>& requests) {
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (const GenerationRequest& request : requests) {
      auto stream = host_->engine->Submit(request);
      EXPECT_TRUE(stream.ok()) << stream.status();
      if (stream.ok()) streams.push_back(*stream);
    }
    std::vector<Result> results;
    for (const auto& stream : streams) {
      results.push_back(ToResult(sink_.Wait(stream, absl::Minutes(5))));
    }
    return results;
  }

 private:
  fakes::CollectingSink sink_;
  std::unique_ptr<EngineHost> host_;
};

// `count` requests of many kinds over a vocabulary of `vocab` ids: greedy and sampled, one branch
// and up to `branches`, prompts of 1 to `longest` tokens, some with a long common beginning.
std::vector<GenerationRequest> Workload(std::int32_t vocab, std::size_t count, std::size_t longest,
                                        std::int32_t max_tokens, std::int32_t branches) {
  const auto ids = [vocab](std::size_t length, std::uint64_t salt) {
    Ids prompt;
    for (std::size_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<TokenId>(PhiloxUniform(salt, 1, i) * (vocab - 20)) + 10);
    }
    return prompt;
  };
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < count; ++i) {
    Ids prompt = ids(1 + i * (longest - 1) / (count - 1), i);
    if (i % 4 == 3) {
      const Ids common = ids(40, 777);
      prompt.insert(prompt.begin(), common.begin(), common.end());
    }
    GenerationRequest request =
        i % 3 == 0 ? Greedy(prompt, max_tokens) : Sampled(prompt, max_tokens, i);
    request.sampling.logprobs = 5;
    if (i % 3 == 1) request.sampling.top_p = 0.9;
    if (i % 3 == 2) {
      request.sampling.n = i % 9 == 2 ? 1 : branches;
      request.sampling.repetition_penalty = 1.2;
      request.sampling.top_k = 40;
    }
    if (i % 8 == 5) request.sampling.prompt_logprobs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::int32_t Preemptions(const std::vector<Result>& results) {
  std::int32_t preemptions = 0;
  for (const Result& result : results) preemptions += result.num_preemptions;
  return preemptions;
}

std::int32_t CachedTokens(const std::vector<Result>& results) {
  std::int32_t cached = 0;
  for (const Result& result : results) cached += result.cached_tokens;
  return cached;
}

// --- The toy model, on every backend and ISA level of this machine ---------------------------

struct Level {
  std::string backend, isa, matrix_type;
};
void PrintTo(const Level& level, std::ostream* out) {
  *out << level.backend << " " << level.isa << " " << level.matrix_type;
}

class ToyDeterminism : public ::testing::TestWithParam<Level> {
 protected:
  void SetUp() override {
    const Level& level = GetParam();
    fakes::ToyOptions toy;
    toy.matrix_type = level.matrix_type;
    plain_ = Plain(fakes::ToyModel(toy).WriteGguf(folder_.path()));
    plain_.backend = level.backend;
    plain_.isa = level.isa;
    if (level.backend == "cpu" && !kernels::cpu::SelectIsa(level.isa).ok()) {
      GTEST_SKIP() << "this machine lacks the level";
    }
    expected_ = Runner(plain_).OneByOne(workload_);
  }

  fakes::TempFolder folder_;
  HostOptions plain_;
  const std::vector<GenerationRequest> workload_ = Workload(300, 32, 120, 24, 2);
  std::vector<Result> expected_;
};

TEST_P(ToyDeterminism, ABatchOf32) {
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

TEST_P(ToyDeterminism, PrefillInChunksBesideDecodes) {
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
                         ::testing::Values(Level{"reference", "", "F32"}, Level{"cpu", "", "F32"},
                                           Level{"cpu", "", "BF16"}, Level{"cpu", "", "Q8_0"},
                                           Level{"cpu", "", "Q4_1"}, Level{"cpu", "avx2", "Q4_1"},
                                           Level{"cpu", "avx512", "Q4_1"}));

// --- SmolLM2 -------------------------------------------------------------------------------

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
  const std::vector<GenerationRequest> measured = Workload(49152, 8, 60, 12, 1);
  std::vector<GenerationRequest> batch = measured;  // 32 in all.
  for (GenerationRequest& request : Workload(49152, 24, 90, 12, 1)) {
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
    options.num_blocks = 24;
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
