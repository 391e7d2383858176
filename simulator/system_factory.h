// The serving systems by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "scheduler/scheduler.h"
#include "simulator/serving_system.h"

namespace quire::simulator {

enum class SystemKind { kQuire, kVllm, kOrcaOracle, kOrcaPow2, kOrcaMax, kStatic };

// "quire", "vllm", "orca-oracle", "orca-pow2", "orca-max", "static".
std::string_view SystemName(SystemKind kind);

struct SystemOptions {
  SystemKind kind = SystemKind::kQuire;
  std::int64_t num_slots = 15'700;  // Paged systems use the whole blocks of it.
  std::int32_t block_size = 16;
  bool enable_prefix_caching = true;
  // The systems other than Quire take its limits on tokens, sequences and length.
  scheduler::SchedulerOptions scheduler = {.max_num_seqs = 256, .max_model_len = 2048};

  absl::Status Validate() const;
};

// REQUIRES: options.Validate().ok().
std::unique_ptr<ServingSystem> MakeSystem(const SystemOptions& options);

}  // namespace quire::simulator
