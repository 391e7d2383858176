#include "simulator/router.h"

#include <algorithm>

namespace quire::simulator {
namespace {

// The finaliser of SplitMix64.
std::uint64_t Mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

}  // namespace

Router::Router(Routing routing, std::int32_t num_replicas)
    : routing_(routing), loads_(static_cast<std::size_t>(num_replicas)) {}

std::int32_t Router::Route(std::span<const TokenId> prompt) {
  std::int32_t replica = 0;
  switch (routing_) {
    case Routing::kRoundRobin:
      replica = next_;
      next_ = (next_ + 1) % static_cast<std::int32_t>(loads_.size());
      break;
    case Routing::kLeastLoad:
      replica = LeastLoaded();
      break;
    case Routing::kCacheAware:
      replica = CacheAware(prompt);
      break;
  }
  ++loads_[static_cast<std::size_t>(replica)];
  return replica;
}

std::int32_t Router::LeastLoaded() const {
  return static_cast<std::int32_t>(std::ranges::min_element(loads_) - loads_.begin());
}

std::int32_t Router::CacheAware(std::span<const TokenId> prompt) {
  const std::int32_t least = LeastLoaded();
  const std::int32_t least_load = loads_[static_cast<std::size_t>(least)];
  pieces_.clear();
  std::uint64_t hash = 0;
  for (std::size_t end = kPieceTokens; end <= prompt.size(); end += kPieceTokens) {
    for (const TokenId token : prompt.subspan(end - kPieceTokens, kPieceTokens)) {
      hash = Mix(hash + 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(token));
    }
    pieces_.push_back(hash);
  }
  std::int32_t chosen = least;
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    const auto holder = holders_.find(*piece);
    if (holder == holders_.end()) continue;
    const std::int32_t load = loads_[static_cast<std::size_t>(holder->second)];
    const bool overloaded = load > kMaxLoadRatio * least_load && load > least_load + kMaxLoadGap;
    if (!overloaded) chosen = holder->second;
    break;
  }
  for (const std::uint64_t piece : pieces_) holders_[piece] = chosen;
  return chosen;
}

}  // namespace quire::simulator
