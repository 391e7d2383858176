// Turning a row of logits into a token and its log-probabilities: one row, plain C++, shared by all
// CPU backends. engine/sampling builds the rows from a request's parameters.
//
// Order of operations (that of vLLM's sampler): log-probabilities are taken from the raw logits;
// then allowed ids, banned ids, bias, repetition / frequency / presence penalties, temperature,
// min_p, top_k, top_p, draw. Ties go to the lowest id. exp and log are our own, so the same logits
// give the same token on every processor.
//
// With weight w = e^((logit - best) / temperature), so that the best token has weight 1 however
// small the temperature:
//   min_p keeps w >= min_p;
//   top_k keeps the k first of the order "weight descending, id ascending" (exactly k, also when
//     logits tie: top_k 1 is arg-max);
//   top_p keeps, in the same order, each token before which less than top_p of the weight left by
//     min_p and top_k has been passed (at least one);
//   the draw walks the kept tokens by ascending id and takes the first at which the cumulative
//     weight exceeds uniform times the whole.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/ids.h"

namespace quire::kernels {

struct TokenCount {
  TokenId token;
  std::int32_t count;
};
struct TokenBias {
  TokenId token;
  float bias;
};

// Parameters of one row. All ids are in [0, vocab); spans outlive the call.
struct SampleRow {
  // Score this token instead of choosing one (prompt log-probabilities); -1: choose.
  TokenId forced_token = -1;
  float temperature = 0;   // 0: arg-max.
  std::int32_t top_k = 0;  // 0: all.
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  double uniform = 0.5;  // In (0, 1): where in the cumulative distribution to draw.
  // Log-probabilities wanted beside the chosen token's: -1 none at all, 0 only the chosen token's.
  std::int32_t num_logprobs = -1;
  std::span<const TokenCount> output_counts = {};  // Distinct generated tokens and how often.
  std::span<const TokenId> prompt_tokens = {};  // Distinct prompt tokens (repetition penalty only).
  std::span<const TokenBias> bias = {};
  std::span<const TokenId> banned = {};         // May not be chosen (bad words, min_tokens).
  std::span<const std::uint64_t> allowed = {};  // Bit mask over the vocabulary; empty: all allowed.
};

struct TokenLogprob {
  TokenId token;
  float logprob;
};

struct SampleResult {
  // False when a logit is NaN or +infinity or no token may be chosen; then nothing else is valid.
  bool ok = false;
  TokenId token = -1;
  float logprob = 0;
  // How many entries of the vocabulary have a log-probability >= this token's; the best has 1.
  std::int32_t rank = 0;
  std::vector<TokenLogprob> top;  // [num_logprobs], best first, ties by lowest id.
  std::int32_t last_rank = 0;     // The rank of the last in `top`; 0: there is none.
};

// Memory that calls of one thread share, to avoid allocation.
struct SampleScratch {
  std::vector<std::int32_t> ids;
  std::vector<float> raw;
};

// Overwrites `logits` [vocab].
void SampleOne(std::span<float> logits, const SampleRow& row, SampleScratch& scratch,
               SampleResult& result);

}  // namespace quire::kernels
