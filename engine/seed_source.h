// Seeds for requests that bring none: a counter-based stream, keyed once by the system's entropy.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <random>

#include "base/philox.h"

namespace quire::engine {

// Thread: any.
class SeedSource {
 public:
  SeedSource() : key_{device_(), device_()} {}

  // Below 2^53, so that every JSON reader keeps it exactly.
  std::uint64_t Next() {
    const std::uint64_t n = counter_.fetch_add(1, std::memory_order_relaxed);
    const auto block = Philox4x32(
        {static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32), 0, 0}, key_);
    return ((std::uint64_t{block[0]} << 32) | block[1]) >> 11;
  }

 private:
  std::random_device device_;
  const std::array<std::uint32_t, 2> key_;
  std::atomic<std::uint64_t> counter_ = 0;
};

}  // namespace quire::engine
