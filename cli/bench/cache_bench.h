// What the KV cache, and paging it, is worth: the same two workloads on the same model in five
// modes, with the same tokens in every answer.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench/local_load.h"

namespace quire::cli::bench {

enum class CacheMode {
  kNoCache,       // Every token recomputes all that is before it.
  kStatic,        // Every request gets blocks for the longest sequence when it starts.
  kPaged,         // Blocks as they are needed; requests share nothing.
  kPagedPrefix,   // And prefixes are found again and shared.
  kPagedSession,  // And conversations keep their blocks between turns.
};
inline constexpr std::array kCacheModes = {CacheMode::kNoCache, CacheMode::kStatic,
                                           CacheMode::kPaged, CacheMode::kPagedPrefix,
                                           CacheMode::kPagedSession};
std::string_view CacheModeName(CacheMode mode);

struct CacheBenchOptions {
  std::int32_t num_turns = 6;     // Of the one conversation.
  std::int32_t num_requests = 8;  // Of the batch, all at once.
  std::int32_t input_len = 32;    // New tokens of a turn; those after the prefix in the batch.
  std::int32_t prefix_len = 128;  // What all prompts of the batch start with.
  std::int32_t max_tokens = 16;   // Of every answer, exactly.
  std::uint64_t seed = 0;
};

// One workload in one mode.
struct CacheRun {
  std::string model_id = {};
  double duration_s = 0;
  std::int64_t output_tokens = 0;
  double mean_ttft_ms = 0, max_ttft_ms = 0;
  BlockUsage usage = {};
  std::vector<std::vector<TokenId>> answers = {};

  double output_tokens_per_second() const {
    return duration_s > 0 ? static_cast<double>(output_tokens) / duration_s : 0;
  }
};

struct CacheModeResult {
  CacheMode mode = CacheMode::kNoCache;
  CacheRun conversation = {};
  CacheRun shared_prefix = {};
};

struct CacheBenchResult {
  CacheBenchOptions options = {};
  std::vector<CacheModeResult> modes = {};  // Not empty.

  const std::string& model_id() const { return modes.front().conversation.model_id; }
};

// `flags` with what the mode asks of the engine.
EngineFlags FlagsOfMode(const EngineFlags& flags, CacheMode mode);

// Runs both workloads in `mode`, each on a new engine. An error if any request fails.
absl::StatusOr<CacheModeResult> RunCacheMode(const EngineFlags& flags, CacheMode mode,
                                             const CacheBenchOptions& options,
                                             const CommandContext& context);

// INTERNAL, naming mode, request and position, unless all modes answered with the same tokens.
absl::Status CheckSameAnswers(std::span<const CacheModeResult> modes);

// One line per mode.
nlohmann::ordered_json CacheModeJson(const CacheBenchResult& result, const CacheModeResult& mode);
void PrintCacheBench(const CacheBenchResult& result, std::ostream& out);

}  // namespace quire::cli::bench
