#include "cli/bench/workload.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"

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
  if (options.range_ratio == 0) return length;
  const double u = PhiloxUniform(options.seed, stream, position);
  const double varied = length * (1 + options.range_ratio * (2 * u - 1));
  return std::max(1, static_cast<std::int32_t>(std::lround(varied)));
}

}  // namespace

std::vector<BenchRequest> MakeWorkload(const WorkloadOptions& options) {
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
