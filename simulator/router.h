// Which replica gets a request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace quire::simulator {

enum class Routing {
  kRoundRobin,
  kLeastLoad,   // The one with the fewest unfinished requests, the first of them.
  kCacheAware,  // One that was sent the longest prefix of this prompt, unless it is overloaded.
};

// Knows only what it sent where and what has ended, as a gateway in front of the replicas does.
class Router {
 public:
  // With kCacheAware a replica that holds the prefix is passed over when it has more than so many
  // times the load of the least loaded one, and so many requests more.
  static constexpr double kMaxLoadRatio = 1.5;
  static constexpr std::int32_t kMaxLoadGap = 8;
  // Prefixes are compared in whole pieces of so many tokens.
  static constexpr std::size_t kPieceTokens = 64;

  Router(Routing routing, std::int32_t num_replicas);

  // Chooses a replica and counts the request as its load until Ended.
  std::int32_t Route(std::span<const TokenId> prompt);
  void Ended(std::int32_t replica) { --loads_[static_cast<std::size_t>(replica)]; }

 private:
  std::int32_t LeastLoaded() const;
  std::int32_t CacheAware(std::span<const TokenId> prompt);

  const Routing routing_;
  std::vector<std::int32_t> loads_;  // Unfinished requests, by replica.
  std::int32_t next_ = 0;            // Round robin.
  // By the hash of a prompt's first pieces: the replica it was sent to last. A collision costs a
  // hit, no more.
  absl::flat_hash_map<std::uint64_t, std::int32_t> holders_;
  std::vector<std::uint64_t> pieces_;  // Scratch.
};

}  // namespace quire::simulator
