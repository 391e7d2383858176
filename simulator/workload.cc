#include "simulator/workload.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "simulator/random.h"

namespace quire::simulator {
namespace {

WorkloadOptions PaperShape(double mean_input, double mean_output) {
  constexpr std::int32_t kMin = 4, kMax = 2048;
  WorkloadOptions options;
  options.input = {.mean = mean_input, .sigma = 1.0, .min = kMin, .max = kMax};
  options.output = {.mean = mean_output, .sigma = 0.8, .min = kMin, .max = kMax};
  options.max_total_len = kMax;
  return options;
}

absl::Status ValidateLengths(const char* name, const LengthDistribution& lengths) {
  if (!(lengths.mean >= 1 && lengths.mean <= 1 << 20)) {
    return InvalidArgument("mean {} length must be in [1, {}], got {}", name, 1 << 20,
                           lengths.mean);
  }
  if (!(lengths.sigma >= 0 && lengths.sigma <= 4)) {
    return InvalidArgument("sigma of the {} length must be in [0, 4], got {}", name, lengths.sigma);
  }
  if (lengths.min < 1 || lengths.max < lengths.min) {
    return InvalidArgument("{} lengths must be clipped to 1 <= min <= max, got {}..{}", name,
                           lengths.min, lengths.max);
  }
  return absl::OkStatus();
}

// Makes the turns of one conversation after another.
class Generator {
 public:
  explicit Generator(const WorkloadOptions& options) : options_(options) {}

  std::vector<Request> Run() {
    absl::Duration arrival;
    for (std::int32_t i = 0; i < options_.num_requests; ++i) {
      if (options_.request_rate > 0) {
        const double u = Uniform(options_.seed, RandomUse::kArrival, Index(i));
        arrival += absl::Seconds(-std::log(u) / options_.request_rate);
      }
      AddConversation(i, arrival);
    }
    return std::move(requests_);
  }

 private:
  static std::uint64_t Index(std::int32_t i) { return static_cast<std::uint64_t>(i); }

  void AddConversation(std::int32_t conversation, absl::Duration arrival) {
    std::vector<Segment> text;
    if (options_.num_prefixes > 0 && options_.prefix_len > 0) {
      const double u = Uniform(options_.seed, RandomUse::kPrefixChoice, Index(conversation));
      const auto prefix = static_cast<std::uint64_t>(u * options_.num_prefixes);
      text.push_back({.stream = TokenStreamId(options_.seed, RandomUse::kPrefixStream, prefix),
                      .length = options_.prefix_len});
    }
    std::int32_t text_len = text.empty() ? 0 : options_.prefix_len;
    for (std::int32_t turn = 0; turn < options_.num_turns; ++turn) {
      const std::uint64_t place = Index(conversation) * Index(options_.num_turns) + Index(turn);
      Request request{.arrival = arrival, .num_branches = options_.num_branches};
      if (options_.num_turns > 1 && options_.num_branches == 1) {
        request.session = std::to_string(conversation);
      }
      std::int32_t input = options_.input.At(Normal(options_.seed, RandomUse::kInputLength, place));
      request.output_len =
          options_.output.At(Normal(options_.seed, RandomUse::kOutputLength, place));
      if (options_.max_total_len > 0) {
        const std::int32_t room = options_.max_total_len - options_.output.min - text_len;
        if (turn > 0 && input > room) return;
        input = std::min(input, room);
        request.output_len =
            std::min(request.output_len, options_.max_total_len - text_len - input);
      }
      if (turn > 0) {
        request.after = static_cast<std::int32_t>(requests_.size()) - 1;
        request.arrival = -std::log(Uniform(options_.seed, RandomUse::kThinkTime, place)) *
                          options_.mean_think_time;
      }
      text.push_back({.stream = TokenStreamId(options_.seed, RandomUse::kPromptStream, place),
                      .length = input});
      request.prompt = text;
      request.output_stream = TokenStreamId(options_.seed, RandomUse::kOutputStream, place);
      text.push_back({.stream = request.output_stream, .length = request.output_len});
      text_len += input + request.output_len;
      requests_.push_back(std::move(request));
    }
  }

  const WorkloadOptions& options_;
  std::vector<Request> requests_;
};

}  // namespace

std::int32_t LengthDistribution::At(double z) const {
  // A lognormal's mean is exp(mu + sigma^2 / 2).
  const double length = std::exp(std::log(mean) - sigma * sigma / 2 + sigma * z);
  return static_cast<std::int32_t>(std::clamp(std::round(length), double(min), double(max)));
}

absl::Status WorkloadOptions::Validate() const {
  constexpr std::int32_t kMaxRequests = 10'000'000;
  if (num_requests < 1 || num_requests > kMaxRequests) {
    return InvalidArgument("a workload has 1 to {} requests, got {}", kMaxRequests, num_requests);
  }
  QUIRE_RETURN_IF_ERROR(ValidateLengths("input", input));
  QUIRE_RETURN_IF_ERROR(ValidateLengths("output", output));
  if (request_rate != 0 && !(request_rate >= kMinRequestRate && request_rate <= kMaxRequestRate)) {
    return InvalidArgument("request rate must be 0 or in [{}, {}] a second, got {}",
                           kMinRequestRate, kMaxRequestRate, request_rate);
  }
  if (num_branches < 1) return InvalidArgument("n must be at least 1, got {}", num_branches);
  if (num_prefixes < 0 || prefix_len < 0 || prefix_len > 1 << 20) {
    return InvalidArgument("prefixes must have 0 to {} tokens, got {} prefixes of {}", 1 << 20,
                           num_prefixes, prefix_len);
  }
  if (num_turns < 1 || num_turns > 10'000) {
    return InvalidArgument("a conversation has 1 to 10000 turns, got {}", num_turns);
  }
  if (std::int64_t{num_requests} * num_turns > kMaxRequests) {
    return InvalidArgument("{} conversations of {} turns are more than {} requests", num_requests,
                           num_turns, kMaxRequests);
  }
  if (mean_think_time < absl::ZeroDuration() || mean_think_time > kMaxThinkTime) {
    return InvalidArgument("think time must be in [0, {}] seconds, got {}",
                           absl::ToDoubleSeconds(kMaxThinkTime),
                           absl::ToDoubleSeconds(mean_think_time));
  }
  const std::int32_t prefix = num_prefixes > 0 ? prefix_len : 0;
  if (max_total_len != 0 && max_total_len < prefix + 1 + output.min) {
    return InvalidArgument(
        "{} tokens in all have no room for a prefix of {}, one more and an answer of {}",
        max_total_len, prefix, output.min);
  }
  return absl::OkStatus();
}

WorkloadOptions ShareGptShape() { return PaperShape(161, 338); }
WorkloadOptions AlpacaShape() { return PaperShape(19, 58); }

std::vector<Request> MakeWorkload(const WorkloadOptions& options) {
  return Generator(options).Run();
}

}  // namespace quire::simulator
