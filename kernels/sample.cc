#include "kernels/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "kernels/math.h"

namespace quire::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Terms of one partial sum. Sums go over fixed blocks of the vocabulary, then over the blocks, so
// that a draw can skip whole blocks and still see the same numbers.
constexpr std::size_t kBlock = 256;
constexpr std::size_t kLanes = 8;

// Up to this many, the best log-probabilities are kept in order while scanning.
constexpr std::size_t kMaxScanned = 64;

double BlockSum(const float* values, std::size_t size) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  }
  for (std::size_t lane = 0; i < size; ++i, ++lane) lanes[lane] += values[i];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

double Sum(std::span<const float> values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); i += kBlock) {
    sum += BlockSum(values.data() + i, std::min(kBlock, values.size() - i));
  }
  return sum;
}

struct Extremes {
  float max = -kInfinity;
  bool valid = true;  // No NaN and no +infinity.
};

Extremes Scan(std::span<const float> logits) {
  // Kept apart in lanes so that the compiler can use vectors.
  float max[kLanes];
  std::uint32_t bad[kLanes] = {};
  std::fill_n(max, kLanes, -kInfinity);
  const auto visit = [&](std::size_t lane, float value) {
    max[lane] = value > max[lane] ? value : max[lane];
    bad[lane] |= value <= std::numeric_limits<float>::max() ? 0U : 1U;
  };
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) visit(lane, logits[i + lane]);
  }
  for (std::size_t lane = 0; i < logits.size(); ++i, ++lane) visit(lane, logits[i]);
  Extremes result;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    result.max = std::max(result.max, max[lane]);
    result.valid = result.valid && bad[lane] == 0;
  }
  return result;
}

TokenId ArgMax(std::span<const float> values, float max) {
  return static_cast<TokenId>(std::find(values.begin(), values.end(), max) - values.begin());
}

// --- Log-probabilities of the raw logits -----------------------------------------------------

// log_softmax(logit) = logit - shift.
double LogprobShift(std::span<const float> logits, float max) {
  float weights[kBlock];
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); i += kBlock) {
    const std::size_t size = std::min(kBlock, logits.size() - i);
    for (std::size_t j = 0; j < size; ++j) weights[j] = Exp(logits[i + j] - max);
    sum += BlockSum(weights, size);
  }
  return static_cast<double>(max) + Log(sum);
}

float Logprob(float logit, double shift) {
  return static_cast<float>(static_cast<double>(logit) - shift);
}

std::int32_t Rank(std::span<const float> logits, double shift, float logprob) {
  std::int32_t rank = 0;
  for (const float logit : logits) rank += Logprob(logit, shift) >= logprob ? 1 : 0;
  return rank;
}

// The `count` best by one scan that keeps them in order; count <= kMaxScanned.
void ScanTop(std::span<const float> logits, std::size_t count, double shift,
             std::vector<TokenLogprob>& top) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const float logprob = Logprob(logits[id], shift);
    if (top.size() == count) {
      if (!(logprob > top.back().logprob)) continue;
      top.pop_back();
    }
    auto place = top.end();
    while (place != top.begin() && (place - 1)->logprob < logprob) --place;
    top.insert(place, {.token = static_cast<TokenId>(id), .logprob = logprob});
  }
}

void SortTop(std::span<const float> logits, std::size_t count, double shift,
             std::vector<TokenLogprob>& top) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    top.push_back({.token = static_cast<TokenId>(id), .logprob = Logprob(logits[id], shift)});
  }
  std::partial_sort(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(count), top.end(),
                    [](const TokenLogprob& a, const TokenLogprob& b) {
                      return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
                    });
  top.resize(count);
}

void FillTop(std::span<const float> logits, std::int32_t num_logprobs, double shift,
             std::vector<TokenLogprob>& top) {
  top.clear();
  const std::size_t count =
      std::min(static_cast<std::size_t>(std::max(num_logprobs, 0)), logits.size());
  if (count == 0) return;
  if (count <= kMaxScanned) {
    ScanTop(logits, count, shift, top);
  } else {
    SortTop(logits, count, shift, top);
  }
}

// --- Changing logits -------------------------------------------------------------------------

// Keeps finite what parameters of any size make of a finite logit; -infinity (forbidden) stays.
float Finite(double value) {
  if (value == -std::numeric_limits<double>::infinity()) return -kInfinity;
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

void ApplyRepetition(std::span<float> logits, const SampleRow& row, std::vector<int>& scratch) {
  if (row.repetition_penalty == 1) return;
  const auto penalise = [&](TokenId token) {
    const double logit = logits[token];
    const double penalty = row.repetition_penalty;
    logits[token] = Finite(logit > 0 ? logit / penalty : logit * penalty);
  };
  // A token of both prompt and output is penalised once.
  scratch.assign((logits.size() + 31) / 32, 0);
  for (const TokenCount& count : row.output_counts) {
    scratch[count.token / 32] |= static_cast<int>(1U << (count.token % 32));
    penalise(count.token);
  }
  for (const TokenId token : row.prompt_tokens) {
    if ((static_cast<unsigned>(scratch[token / 32]) >> (token % 32) & 1U) == 0) penalise(token);
  }
}

void ApplyConstraints(std::span<float> logits, const SampleRow& row, std::vector<int>& scratch) {
  if (!row.allowed.empty()) {
    QUIRE_DCHECK(row.allowed.size() * 64 >= logits.size());
    for (std::size_t id = 0; id < logits.size(); ++id) {
      if ((row.allowed[id / 64] >> (id % 64) & 1U) == 0) logits[id] = -kInfinity;
    }
  }
  for (const TokenId token : row.banned) logits[token] = -kInfinity;
  for (const TokenBias& bias : row.bias) {
    logits[bias.token] = Finite(static_cast<double>(logits[bias.token]) + bias.bias);
  }
  ApplyRepetition(logits, row, scratch);
  if (row.frequency_penalty == 0 && row.presence_penalty == 0) return;
  for (const TokenCount& count : row.output_counts) {
    logits[count.token] = Finite(static_cast<double>(logits[count.token]) -
                                 static_cast<double>(row.frequency_penalty) * count.count -
                                 static_cast<double>(row.presence_penalty));
  }
}

// --- Drawing ---------------------------------------------------------------------------------

// "Weight descending, id ascending", over ids of one weight array.
struct ByWeight {
  std::span<const float> weights;
  bool operator()(std::int32_t a, std::int32_t b) const {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  }
};

// Gives weight 0 to whatever comes after `last` in the order ByWeight.
void DropAfter(std::int32_t last, std::span<float> weights) {
  const float threshold = weights[last];
  for (std::size_t id = 0; id < weights.size(); ++id) {
    const bool kept = weights[id] > threshold ||
                      (weights[id] == threshold && static_cast<std::int32_t>(id) <= last);
    weights[id] = kept ? weights[id] : 0.0F;
  }
}

void CollectAtLeast(float threshold, std::span<const float> weights,
                    std::vector<std::int32_t>& ids) {
  ids.clear();
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] > 0 && weights[id] >= threshold) ids.push_back(static_cast<std::int32_t>(id));
  }
}

void ApplyTopK(std::int32_t top_k, std::span<float> weights, std::vector<std::int32_t>& ids) {
  if (top_k <= 0 || static_cast<std::size_t>(top_k) >= weights.size()) return;
  CollectAtLeast(0, weights, ids);
  if (ids.size() <= static_cast<std::size_t>(top_k)) return;
  const auto last = ids.begin() + (top_k - 1);
  std::nth_element(ids.begin(), last, ids.end(), ByWeight{weights});
  DropAfter(*last, weights);
}

void ApplyTopP(float top_p, std::span<float> weights, std::vector<std::int32_t>& ids) {
  if (!(top_p < 1)) return;
  const double total = Sum(weights);
  const double wanted = static_cast<double>(top_p) * total;
  // All tokens lighter than this together weigh less than the (1 - top_p) that is to be dropped
  // (half of it, to stay clear of rounding): they need no sorting.
  const double light = 0.5 * (total - wanted) / static_cast<double>(weights.size());
  CollectAtLeast(static_cast<float>(light), weights, ids);
  // Sorts the front of the order in growing pieces, until it holds enough.
  double passed = 0;
  auto sorted_end = ids.begin();
  std::ptrdiff_t piece = 128;
  while (sorted_end != ids.end()) {
    const auto next = sorted_end + std::min<std::ptrdiff_t>(piece, ids.end() - sorted_end);
    std::partial_sort(sorted_end, next, ids.end(), ByWeight{weights});
    for (; sorted_end != next; ++sorted_end) {
      passed += weights[*sorted_end];
      if (passed >= wanted) {
        DropAfter(*sorted_end, weights);
        return;
      }
    }
    piece *= 4;
  }
}

TokenId Draw(std::span<const float> weights, double uniform) {
  const double target = uniform * Sum(weights);
  double passed = 0;
  TokenId last = -1;  // Should rounding leave the target just out of reach.
  for (std::size_t i = 0; i < weights.size(); i += kBlock) {
    const std::size_t size = std::min(kBlock, weights.size() - i);
    const double block = BlockSum(weights.data() + i, size);
    if (block == 0) continue;
    const bool here = passed + block > target;
    double inside = passed;
    for (std::size_t j = 0; j < size; ++j) {
      if (weights[i + j] == 0) continue;
      last = static_cast<TokenId>(i + j);
      inside += weights[i + j];
      if (here && inside > target) return last;
    }
    if (here) return last;
    passed += block;
  }
  return last;
}

TokenId Choose(std::span<float> logits, const SampleRow& row, float max,
               std::vector<std::int32_t>& scratch) {
  if (row.temperature == 0 || row.top_k == 1) return ArgMax(logits, max);
  const float temperature = row.temperature;
  const float min_p = row.min_p;
  for (float& value : logits) {
    const float weight = Exp((value - max) / temperature);
    value = weight >= min_p ? weight : 0.0F;
  }
  ApplyTopK(row.top_k, logits, scratch);
  ApplyTopP(row.top_p, logits, scratch);
  return Draw(logits, row.uniform);
}

}  // namespace

void SampleOne(std::span<float> logits, const SampleRow& row, SampleScratch& scratch,
               SampleResult& result) {
  result.ok = false;
  result.token = -1;
  result.top.clear();
  result.last_rank = 0;
  const Extremes raw = Scan(logits);
  if (!raw.valid || raw.max == -kInfinity) return;

  const bool wants_logprobs = row.num_logprobs >= 0 || row.forced_token >= 0;
  double shift = 0;
  if (wants_logprobs) {
    shift = LogprobShift(logits, raw.max);
    FillTop(logits, row.num_logprobs, shift, result.top);
    scratch.raw.assign(logits.begin(), logits.end());
  }
  result.token = row.forced_token;
  if (row.forced_token < 0) {
    ApplyConstraints(logits, row, scratch.ids);
    const Extremes changed = Scan(logits);
    if (!changed.valid || changed.max == -kInfinity) return;
    result.token = Choose(logits, row, changed.max, scratch.ids);
  }
  if (wants_logprobs) {
    result.logprob = Logprob(scratch.raw[result.token], shift);
    result.rank = Rank(scratch.raw, shift, result.logprob);
    if (!result.top.empty()) {
      result.last_rank = Rank(scratch.raw, shift, result.top.back().logprob);
    }
  }
  result.ok = true;
}

}  // namespace quire::kernels
