// Running one set of requests in many ways and comparing every bit of the answers: shared by the
// determinism tests of the toy model and of SmolLM2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/host.h"
#include "tests/fakes/collecting_sink.h"

namespace quire::engine {

// What must be equal, log-probabilities as their bits.
struct Result {
  absl::Status status;
  std::vector<std::vector<TokenId>> token_ids;           // [branch]
  std::vector<std::vector<std::uint32_t>> logprob_bits;  // [branch] chosen and top, in order
  std::vector<std::uint32_t> prompt_logprob_bits;
  std::int32_t cached_tokens = 0;
  std::int32_t num_preemptions = 0;
};

void ExpectSameBits(const std::vector<Result>& expected, const std::vector<Result>& actual);
std::int32_t Preemptions(const std::vector<Result>& results);
std::int32_t CachedTokens(const std::vector<Result>& results);

// The plainest way, with which the others are compared: one request at a time (two branches at
// most), whole prompts, no cache, one thread.
HostOptions Plain(const std::string& model_path);
HostOptions Batched(HostOptions options, std::int32_t num_sequences);
HostOptions Chunked(HostOptions options, std::int32_t chunk);

// `count` requests of many kinds over a vocabulary of `vocab` ids: greedy and sampled, one branch
// and up to `branches`, prompts of 1 to `longest` tokens, some with a long common beginning.
std::vector<GenerationRequest> Workload(std::int32_t vocab, std::size_t count, std::size_t longest,
                                        std::int32_t max_tokens, std::int32_t branches);

// An engine of its own for every way.
class Runner {
 public:
  explicit Runner(const HostOptions& options);
  std::vector<Result> OneByOne(const std::vector<GenerationRequest>& requests);
  std::vector<Result> AllAtOnce(const std::vector<GenerationRequest>& requests);

 private:
  fakes::CollectingSink sink_;
  std::unique_ptr<EngineHost> host_;
};

}  // namespace quire::engine
