// The prompts of a load test and the moments at which they are due. Pure functions of their
// options: the same seed gives the same load on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace quire::cli::bench {

enum class WorkloadKind {
  kRandom,        // Every prompt is random tokens; nothing is shared.
  kSharedPrefix,  // Every prompt starts with one of a few common prefixes.
};

struct WorkloadOptions {
  WorkloadKind kind = WorkloadKind::kRandom;
  std::int32_t num_prompts = 100;
  std::int32_t input_len = 128;   // Tokens of a prompt; for kSharedPrefix those after the prefix.
  std::int32_t output_len = 64;   // Tokens of an answer, exactly (end of sequence is ignored).
  double range_ratio = 0;         // Both lengths vary uniformly by up to this share.
  std::int32_t prefix_len = 256;  // kSharedPrefix only, as the next.
  std::int32_t num_prefixes = 4;
  std::uint64_t seed = 0;
  std::int32_t vocab_size = 0;
};

struct BenchRequest {
  std::vector<TokenId> prompt;
  std::int32_t output_len = 0;
};

std::vector<BenchRequest> MakeWorkload(const WorkloadOptions& options);

// The first `count` moments of a Poisson process of `per_second` events a second, from its start:
// gaps are exponential and not rescaled, so the achieved rate varies as it does in life.
std::vector<absl::Duration> PoissonArrivals(std::int32_t count, double per_second,
                                            std::uint64_t seed);

}  // namespace quire::cli::bench
