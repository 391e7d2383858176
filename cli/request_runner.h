// Sends many requests to a target, so many at a time, and hands out their answers in order.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cli/target.h"
#include "quire/v1/generation.pb.h"
#include "server/client.h"

namespace quire::cli {

struct RunnerOptions {
  std::size_t concurrency = 0;  // 0: all at once.
  server::CallOptions call;
};

struct RequestResult {
  v1::GenerateUnaryResponse answer;  // As far as it came.
  server::CallOutcome outcome;
};

struct RunnerHooks {
  // Every message as it arrives, on the target's thread; must not block. May be empty.
  std::function<void(std::size_t index, const v1::GenerateResponse& response)> on_response;
  // So many requests are done; on the caller's thread. May be empty.
  std::function<void(std::size_t num_done)> on_progress;
  // The result of request 0, then of 1, and so on, each once it is there; on the caller's thread.
  std::function<void(std::size_t index, const RequestResult& result)> on_result;
};

// Returns when every request is done.
void RunRequests(Target& target, const std::vector<v1::GenerateRequest>& requests,
                 const RunnerOptions& options, const RunnerHooks& hooks);

}  // namespace quire::cli
