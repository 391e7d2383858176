#include "cli/bench/workload.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "base/status.h"
#include "simulator/random.h"
#include "simulator/workload.h"

namespace quire::cli::bench {
namespace {

// Streams of random numbers: requests count up from 0, the others live far above.
constexpr std::uint32_t kPrefixStream = 0x80000000U;
constexpr std::uint32_t kArrivalStream = 0xC0000000U;
// Positions of the two lengths in a request's stream; its tokens count up from 0.
constexpr std::uint64_t kInputLenPosition = std::uint64_t{1} << 40;
constexpr std::uint64_t kOutputLenPosition = kInputLenPosition + 1;

void AppendTokens(const WorkloadOptions& options, std::uint32_t stream, std::int32_t count,
                  std::vector<TokenId>* tokens) {
  for (std::int32_t i = 0; i < count; ++i) {
    const double u = PhiloxUniform(options.seed, stream, static_cast<std::uint64_t>(i));
    tokens->push_back(static_cast<TokenId>(u * options.vocab_size));
  }
}

std::int32_t Vary(const WorkloadOptions& options, std::uint32_t stream, std::uint64_t position,
                  std::int32_t length) {
  if (options.range_ratio == 0 || options.kind == WorkloadKind::kFixed) return length;
  const double u = PhiloxUniform(options.seed, stream, position);
  const double varied = length * (1 + options.range_ratio * (2 * u - 1));
  return std::max(1, static_cast<std::int32_t>(std::lround(varied)));
}

std::vector<BenchRequest> MakeRandom(const WorkloadOptions& options) {
  std::vector<BenchRequest> requests(static_cast<std::size_t>(options.num_prompts));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    BenchRequest& request = requests[i];
    const auto stream = static_cast<std::uint32_t>(i);
    if (options.kind == WorkloadKind::kSharedPrefix) {
      const auto prefix =
          static_cast<std::uint32_t>(i % static_cast<std::size_t>(options.num_prefixes));
      AppendTokens(options, kPrefixStream + prefix, options.prefix_len, &request.prompt);
    }
    AppendTokens(options, stream, Vary(options, stream, kInputLenPosition, options.input_len),
                 &request.prompt);
    request.output_len = Vary(options, stream, kOutputLenPosition, options.output_len);
  }
  return requests;
}

simulator::WorkloadOptions SimulatedOptions(const WorkloadOptions& options) {
  const simulator::WorkloadOptions share_gpt = simulator::ShareGptShape();
  simulator::WorkloadOptions out;
  switch (options.kind) {
    case WorkloadKind::kShareGpt:
      out = share_gpt;
      break;
    case WorkloadKind::kAlpaca:
      out = simulator::AlpacaShape();
      break;
    case WorkloadKind::kLogNormal:
      out = share_gpt;
      out.input.mean = options.input_len;
      out.output.mean = options.output_len;
      break;
    default:
      out.input = {.mean = double(options.input_len)};
      out.output = {.mean = double(options.output_len)};
      out.num_turns = options.num_turns;
      break;
  }
  out.max_total_len = out.max_total_len == 0 ? options.max_model_len
                                             : std::min(out.max_total_len, options.max_model_len);
  out.num_requests = options.num_prompts;
  out.seed = options.seed;
  return out;
}

// The simulator's rows of tokens, brought into the vocabulary.
void AppendSegment(const simulator::Segment& segment, std::int32_t vocab_size,
                   std::vector<TokenId>* tokens) {
  const std::size_t begin = tokens->size();
  simulator::AppendStreamTokens(segment.stream, segment.branch, 0, segment.length, tokens);
  for (std::size_t i = begin; i < tokens->size(); ++i) (*tokens)[i] %= vocab_size;
}

absl::StatusOr<std::vector<BenchRequest>> MakeSimulated(const WorkloadOptions& options) {
  const simulator::WorkloadOptions simulated = SimulatedOptions(options);
  QUIRE_RETURN_IF_ERROR(simulated.Validate());
  std::vector<BenchRequest> requests;
  for (const simulator::Request& request : simulator::MakeWorkload(simulated)) {
    requests.push_back({.prompt = {}, .output_len = request.output_len, .follows = request.after});
    // Before the last segment of a later turn come the turns before it.
    AppendSegment(request.prompt.back(), options.vocab_size, &requests.back().prompt);
  }
  return requests;
}

}  // namespace

std::vector<std::pair<std::string, WorkloadKind>> WorkloadNames() {
  return {{"random", WorkloadKind::kRandom},       {"fixed", WorkloadKind::kFixed},
          {"lognormal", WorkloadKind::kLogNormal}, {"sharegpt", WorkloadKind::kShareGpt},
          {"alpaca", WorkloadKind::kAlpaca},       {"shared-prefix", WorkloadKind::kSharedPrefix},
          {"multi-turn", WorkloadKind::kMultiTurn}};
}

std::string WorkloadName(WorkloadKind kind) {
  for (const auto& [name, named] : WorkloadNames()) {
    if (named == kind) return name;
  }
  return "unknown";
}

absl::StatusOr<std::vector<BenchRequest>> MakeWorkload(const WorkloadOptions& options) {
  switch (options.kind) {
    case WorkloadKind::kRandom:
    case WorkloadKind::kFixed:
    case WorkloadKind::kSharedPrefix:
      return MakeRandom(options);
    case WorkloadKind::kLogNormal:
    case WorkloadKind::kShareGpt:
    case WorkloadKind::kAlpaca:
    case WorkloadKind::kMultiTurn:
      return MakeSimulated(options);
  }
  return Internal("unknown workload");
}

std::vector<std::int32_t> FollowsOf(const std::vector<BenchRequest>& requests) {
  std::vector<std::int32_t> follows;
  for (const BenchRequest& request : requests) follows.push_back(request.follows);
  return follows;
}

std::vector<absl::Duration> PoissonArrivals(std::int32_t count, double per_second,
                                            std::uint64_t seed) {
  std::vector<absl::Duration> arrivals;
  double seconds = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    seconds -=
        std::log(PhiloxUniform(seed, kArrivalStream, static_cast<std::uint64_t>(i))) / per_second;
    arrivals.push_back(absl::Seconds(seconds));
  }
  return arrivals;
}

}  // namespace quire::cli::bench
