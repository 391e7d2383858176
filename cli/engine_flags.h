// The flags that shape an engine: of `quire serve`, and of every command that runs a model in its
// own process.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "engine/host.h"

namespace quire::cli {

struct EngineFlags {
  ModelFlags model;
  engine::HostOptions host;  // Defaults, overwritten by flags; model_path is filled in later.
  std::optional<std::int64_t> max_prefill_tokens;
  std::optional<std::int64_t> max_model_len;
  bool no_prefix_caching = false;
  double target_itl_ms = 0;
  enum class KvChoice { kAuto, kF32, kF16 };
  KvChoice kv_cache_dtype = KvChoice::kAuto;
};

// Returns the option --model; every other flag needs it.
CLI::Option* AddEngineFlags(CLI::App& app, EngineFlags* flags);
// --chat-template, for commands that take messages. REQUIRES: AddEngineFlags.
void AddChatTemplateFlag(CLI::App& app, EngineFlags* flags);
// What a server refuses; a model in one's own process has no such limits.
void AddServerLimitFlags(CLI::App& app, EngineFlags* flags);

// What the flags (and QUIRE_ISA) come to, checked as far as that is possible without the model.
// INVALID_ARGUMENT naming the flag and what is allowed.
absl::StatusOr<engine::HostOptions> MakeHostOptions(const EngineFlags& flags,
                                                    const Environment& environment);

// Finds the model and starts the engine, with progress on stderr. `sink` must outlive the host.
absl::StatusOr<std::unique_ptr<engine::EngineHost>> StartHost(const EngineFlags& flags,
                                                              engine::HostOptions options,
                                                              engine::OutputSink* sink,
                                                              const CommandContext& context);

// Every effective setting by its flag's name, as text (GetServerInfo).
std::map<std::string, std::string> EffectiveSettings(const engine::HostOptions& options,
                                                     const engine::HostReport& report);

}  // namespace quire::cli
