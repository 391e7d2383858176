// Where a command sends its requests: a server (--server) or an engine in this process (--model).
// Both take and answer with the same messages.
//
// Ownership: a Target outlives no request: its destructor cancels what is live and returns after
// the last `on_done`.
// Thread: Generate and Call::Cancel may be called from any thread. Callbacks run on one thread of
// the target, one at a time; they must not block.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/engine_flags.h"
#include "server/client.h"

namespace quire::cli {

class Target {
 public:
  using OnResponse = server::Client::OnResponse;
  using OnDone = server::Client::OnDone;

  virtual ~Target() = default;
  // `on_response` gets every message in order, then `on_done` comes exactly once.
  virtual std::shared_ptr<server::Call> Generate(const v1::GenerateRequest& request,
                                                 const server::CallOptions& options,
                                                 OnResponse on_response, OnDone on_done) = 0;
  // Gives up what is kept for a session. Best effort: waits no longer than `timeout`.
  virtual void EndSession(const std::string& session_id, const std::string& cache_salt,
                          absl::Duration timeout) = 0;
};

struct TargetFlags {
  std::string server;
  EngineFlags engine;
};

// --server, --model and the engine's flags; exactly one of the first two must be given.
void AddTargetFlags(CLI::App& app, TargetFlags* flags);

// What can be said of the flags before anything is opened.
absl::Status CheckTargetFlags(const TargetFlags& flags, const Environment& environment);

// REQUIRES: CheckTargetFlags.
absl::StatusOr<std::unique_ptr<Target>> OpenTarget(const TargetFlags& flags,
                                                   const CommandContext& context);

// An engine in this process.
class LocalTarget : public Target {
 public:
  virtual const engine::EngineHost& host() const = 0;
};
absl::StatusOr<std::unique_ptr<LocalTarget>> OpenLocalTarget(const EngineFlags& flags,
                                                             const CommandContext& context);

}  // namespace quire::cli
