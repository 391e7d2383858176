// The engine: takes requests from any thread, computes them together on one thread of its own, and
// streams their tokens back.
//
// Ownership: owns scheduler, block manager and model runner. Streams are shared with their readers
// and outlive the engine safely (they end with a terminal status when it is destroyed).
// Thread: all public methods may be called from any thread and none waits for a step, except
// Drain, GetBlockMap, ResetPrefixCache and EndSession, which wait with a bound.
// Invariants: (1) every request that Submit accepted gets exactly one terminal status. (2) When the
// last message of a request is published, its blocks are back and the published stats say so.
// (3) With no work the engine thread sleeps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "block_manager/block_manager.h"
#include "engine/kv_event_hub.h"
#include "engine/model_runner.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "scheduler/scheduler.h"

namespace quire::engine {

struct EngineOptions {
  scheduler::SchedulerOptions scheduler;
  bool enable_prefix_caching = true;
  std::int32_t max_queued_requests = 1024;  // Waiting for their first step; n counts n.
  std::int64_t max_queued_prompt_tokens = 1 << 22;
  std::int64_t max_prompt_bytes = 8 << 20;  // Checked before tokenising.
  std::int32_t max_logprobs = 20;           // Larger requests are refused; -1: no limit.
  std::int32_t max_n = 64;
  double session_cache_share = 0.5;                // Of the pool, for the leases of sessions.
  absl::Duration session_ttl = absl::Minutes(10);  // Of a lease.
  // Gives every sequence blocks for max_model_len tokens (or the whole pool) when it starts, as
  // engines without paging do; for comparisons.
  bool preallocate = false;
  // KV events that may wait for the slowest subscriber.
  std::int64_t max_kv_event_bytes = 32 << 20;
  absl::Status Validate() const;
  // BlockManagerOptions::max_session_blocks for a pool of so many.
  std::int64_t max_session_blocks(std::int64_t num_blocks) const {
    return block_manager::BlockManagerOptions{.num_blocks = num_blocks,
                                              .session_share = session_cache_share}
        .max_session_blocks();
  }
};

// What requests need to know about the model beside its runner.
struct ModelTraits {
  std::vector<TokenId> eos_token_ids = {};  // All of them (generation config and tokenizer).
  sampling::SamplingDefaults sampling_defaults = {};
};

class Engine {
 public:
  // `tokenizer` may be null (token ids only); `chat_template` may be null (chat is refused). `sink`
  // and `clock` must outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      const EngineOptions& options, std::unique_ptr<ModelRunner> runner,
      std::shared_ptr<const text::Tokenizer> tokenizer,
      std::shared_ptr<const text::ChatTemplate> chat_template, ModelTraits traits, OutputSink* sink,
      Clock& clock = Clock::Real());
  ~Engine();

  // Reserves a queue place, then returns at once; text is encoded on the text thread. An error here
  // is the request's terminal status: INVALID_ARGUMENT (names the field), RESOURCE_EXHAUSTED (queue
  // full; see retry_after), ALREADY_EXISTS (id in use), UNAVAILABLE (draining).
  absl::StatusOr<std::shared_ptr<TokenStream>> Submit(GenerationRequest request);

  // Counts a request that was refused before it was submitted.
  void CountRefused();

  // Ends a request with `status` before the next step and frees its blocks. Idempotent; unknown ids
  // are ignored.
  void Abort(std::string_view request_id, absl::Status status);
  // The same, bound to this very request even if its id has been used again.
  void Abort(const std::shared_ptr<TokenStream>& stream, absl::Status status);

  // Makes the engine thread look at its mail and its clock; for clocks that are moved by hand.
  void Poke();

  // Rises while a step computes (ModelRunner::progress).
  std::uint64_t progress() const;
  // The newest snapshot; cheap.
  std::shared_ptr<const EngineStats> stats() const;
  // Waits until a snapshot newer than `sequence_number` exists or `timeout` passes.
  std::shared_ptr<const EngineStats> WaitForStats(std::uint64_t sequence_number,
                                                  absl::Duration timeout) const;
  absl::StatusOr<BlockMap> GetBlockMap(absl::Duration timeout) const;
  // Forgets all cached content that no sequence uses; returns how many blocks became free.
  absl::StatusOr<std::int64_t> ResetPrefixCache(absl::Duration timeout);

  // Ends a session's lease, so that its blocks are ordinary cached ones; false when there is none.
  absl::StatusOr<bool> EndSession(std::string_view session_id, std::string_view cache_salt,
                                  absl::Duration timeout);

  // All changes of the prefix cache from now on, after a snapshot. RESOURCE_EXHAUSTED when too many
  // subscribe. Ends with UNAVAILABLE when the engine does. `on_ready` as KvEventHub::OnReady.
  absl::StatusOr<std::shared_ptr<KvEventSubscription>> SubscribeKvEvents(
      KvEventHub::OnReady on_ready);

  // How long a refused client should wait before trying again.
  absl::Duration retry_after() const;

  // Refuses new work and waits until all accepted work has ended or `timeout` passes, then ends
  // what is left with ABORTED. Idempotent.
  void Drain(absl::Duration timeout);

  absl::StatusOr<std::vector<TokenId>> Tokenize(const TextPrompt& prompt) const;
  absl::StatusOr<std::vector<TokenId>> TokenizeChat(const ChatPrompt& prompt) const;
  absl::StatusOr<std::string> Detokenize(const std::vector<TokenId>& ids,
                                         bool skip_special_tokens) const;

  const EngineOptions& options() const;
  const ModelTraits& traits() const;
  std::int32_t vocab_size() const;
  const KvGeometry& kv_geometry() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::engine
