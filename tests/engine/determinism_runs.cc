#include "tests/engine/determinism_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/philox.h"
#include "tests/engine/engine_harness.h"

namespace quire::engine {

using Ids = std::vector<TokenId>;

namespace {

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

}  // namespace

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

Runner::Runner(const HostOptions& options) {
  auto host = StartEngine(options, &sink_, {});
  QUIRE_CHECK(host.ok()) << host.status();
  host_ = *std::move(host);
}

std::vector<Result> Runner::OneByOne(const std::vector<GenerationRequest>& requests) {
  std::vector<Result> results;
  for (const GenerationRequest& request : requests) {
    results.push_back(AllAtOnce({request}).front());
  }
  return results;
}

std::vector<Result> Runner::AllAtOnce(const std::vector<GenerationRequest>& requests) {
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const GenerationRequest& request : requests) {
    auto stream = host_->engine->Submit(request);
    QUIRE_CHECK(stream.ok()) << stream.status();
    streams.push_back(*stream);
  }
  std::vector<Result> results;
  for (const auto& stream : streams) {
    results.push_back(ToResult(sink_.Wait(stream, absl::Minutes(5))));
  }
  return results;
}

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

}  // namespace quire::engine
