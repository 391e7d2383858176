// The prompts of a load test and the moments at which they are due. Pure functions of their
// options: the same seed gives the same load on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "cli/bench/load.h"

namespace quire::cli::bench {

enum class WorkloadKind {
  kRandom,        // Every prompt is random tokens; nothing is shared.
  kFixed,         // The same with exact lengths.
  kSharedPrefix,  // Every prompt starts with one of a few common prefixes.
  // The same workloads as in the simulator, where lengths and shapes are defined.
  kLogNormal,  // Lognormal lengths, input_len and output_len on average.
  kShareGpt,   // Shaped like that data set: 161 and 338 tokens on average.
  kAlpaca,     // 19 and 58.
  kMultiTurn,  // Conversations: each prompt is the whole text so far and something new.
};

// Every kind by its name on the command line.
std::vector<std::pair<std::string, WorkloadKind>> WorkloadNames();
std::string WorkloadName(WorkloadKind kind);

struct WorkloadOptions {
  WorkloadKind kind = WorkloadKind::kRandom;
  std::int32_t num_prompts = 100;  // Conversations of kMultiTurn.
  std::int32_t input_len = 128;    // Tokens of a prompt; only what is new, with prefix or turns.
  std::int32_t output_len = 64;    // Tokens of an answer, exactly (end of sequence is ignored).
  // kRandom and kSharedPrefix: both lengths vary uniformly by up to this share.
  double range_ratio = 0;
  std::int32_t prefix_len = 256;  // kSharedPrefix only, as the next.
  std::int32_t num_prefixes = 4;
  std::int32_t num_turns = 4;  // kMultiTurn only.
  std::uint64_t seed = 0;
  std::int32_t vocab_size = 0;
  // The model's context: the simulator's workloads are cut to it, other requests that exceed it
  // fail.
  std::int32_t max_model_len = 0;
};

struct BenchRequest {
  std::vector<TokenId> prompt;  // With `follows`, only what comes after that request's answer.
  std::int32_t output_len = 0;
  std::int32_t follows = kNoRequest;  // The turn before it.
};

// INVALID_ARGUMENT when the context is too short for such requests.
absl::StatusOr<std::vector<BenchRequest>> MakeWorkload(const WorkloadOptions& options);

// LoadOptions::follows of these requests.
std::vector<std::int32_t> FollowsOf(const std::vector<BenchRequest>& requests);

// The first `count` moments of a Poisson process of `per_second` events a second, from its start:
// gaps are exponential and not rescaled, so the achieved rate varies as it does in life.
std::vector<absl::Duration> PoissonArrivals(std::int32_t count, double per_second,
                                            std::uint64_t seed);

}  // namespace quire::cli::bench
