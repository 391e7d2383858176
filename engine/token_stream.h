// A request's output on its way from the engine thread to whoever reads it. Merges what the reader
// has not yet taken, so a slow reader costs one bounded buffer and never a wait.
//
// Thread: Take, Cancel and the getters may be called from any thread. Everything else is the
// engine's.
// Invariants: (1) at most one `accepted` per stream, before any delta. (2) Per branch the deltas,
// joined, are the whole answer; the branch's `finished` follows its last delta. (3) Exactly one
// terminal status per request: OK after all branches finished, else an error; nothing follows it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/request.h"
#include "engine/sampling/logprobs.h"

namespace quire::engine {

struct Accepted {
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;
  absl::Duration queue_time;
  std::vector<TokenId> prompt_token_ids;  // As tokenised; empty unless the request had text.
};

// New output of one branch since the last Take.
struct Delta {
  std::int32_t index = 0;  // Branch, [0, n).
  std::vector<TokenId> token_ids;
  std::string text;  // Whole UTF-8 characters; may be empty while bytes are pending.
  std::vector<sampling::PositionLogprobs> logprobs;  // One per token id when asked for.
};

struct Timings {
  absl::Duration queue, prefill, decode;  // Until first scheduled; first token; last token.
  absl::Duration time_to_first_token;
  std::int32_t num_preemptions = 0;
  std::int32_t num_blocks = 0;  // Held at the end.
};

struct Finished {
  std::int32_t index = 0;
  FinishReason reason = FinishReason::kStop;
  std::string detail;  // "kv_capacity", "max_model_len" or empty.
  MatchedStop matched_stop;
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;
  std::int32_t completion_tokens = 0;
  std::uint64_t seed = 0;  // The seed used, drawn when none was given.
  Timings timings;
};

// Everything that happened since the last Take, in order of the fields.
struct StreamChunk {
  std::optional<Accepted> accepted;
  std::vector<sampling::PositionLogprobs> prompt_logprobs;  // Complete, once, when asked for.
  std::vector<Delta> deltas;             // At most one per branch, ascending index.
  std::vector<Finished> finished;        // Branches that ended.
  std::optional<absl::Status> terminal;  // The request is over.
  bool empty() const {
    return !accepted && prompt_logprobs.empty() && deltas.empty() && finished.empty() && !terminal;
  }
};

class TokenStream {
 public:
  explicit TokenStream(std::string request_id) : request_id_(std::move(request_id)) {}

  const std::string& request_id() const { return request_id_; }
  // Takes all pending output; empty() when there is none.
  StreamChunk Take();
  // Tokens pushed but not yet taken.
  std::int64_t num_pending_tokens() const;
  // Whether nothing more will be pushed; what is pending may still be taken.
  bool terminated() const;

  // --- Engine side ----------------------------------------------------------------------------
  // Adds all of `chunk` to the pending output in one step, so that a reader sees all or nothing of
  // it, and empties `chunk`. Each of its fields obeys the rule of the method named after it.
  void Push(StreamChunk& chunk);
  void PushAccepted(Accepted accepted);
  void PushPromptLogprobs(std::vector<sampling::PositionLogprobs> logprobs);
  void PushDelta(Delta delta);
  void PushFinished(Finished finished);
  // Ignored after the first call, as is everything that is pushed later.
  void PushTerminal(absl::Status status);

 private:
  void Merge(Delta&& delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string request_id_;
  mutable absl::Mutex mutex_;
  StreamChunk pending_ ABSL_GUARDED_BY(mutex_);
  bool terminated_ ABSL_GUARDED_BY(mutex_) = false;
};

// Told once per step which streams have new output. Must not block: the server hands the list to
// its emitter thread, the in-process client wakes its reader.
// Thread: called on the engine thread or, for requests that fail before they reach it, on the text
// thread.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void OnOutput(std::vector<std::shared_ptr<TokenStream>> streams) = 0;
};

}  // namespace quire::engine
