// A request on the engine thread: its branches, what they have produced, and the output that waits
// to be handed to its stream. Decides when a branch ends; knows no scheduler and no blocks.
//
// Thread: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/request_ledger.h"
#include "engine/request_state.h"
#include "engine/sampling/sequence_sampler.h"
#include "engine/text/text_stream.h"
#include "engine/text/tokenizer.h"
#include "kernels/sample.h"

namespace quire::engine {

// Why and how a branch ended.
struct Ending {
  FinishReason reason = FinishReason::kStop;
  std::string detail = {};  // As Finished::detail.
  MatchedStop matched_stop = {};
};

// One branch: chooses with its own random stream, turns tokens into text, watches for stops.
class Branch {
 public:
  // `tokenizer` may be null: no text.
  Branch(const Request& request, std::int32_t index, SequenceId id,
         const text::Tokenizer* tokenizer);

  SequenceId id() const { return id_; }
  std::int32_t index() const { return index_; }
  std::int32_t num_output_tokens() const { return sampler_.num_output_tokens(); }
  bool finished() const { return finished_; }

  // How to choose the next token; valid until Accept.
  kernels::SampleRow NextRow() { return sampler_.NextRow(); }

  // Takes the chosen token, adds what it makes certain to `delta`, says whether the branch ends.
  // REQUIRES: result.ok, not finished.
  std::optional<Ending> Accept(const kernels::SampleResult& result, Delta& delta);

  // No more tokens come: adds text that was still held back.
  void Finish(Delta& delta);

  absl::Time last_token_time;
  std::int32_t num_preemptions = 0;
  std::int32_t num_blocks = 0;  // Of its table when it was last scheduled.

 private:
  std::optional<Ending> EndingFor(sampling::FinishCause cause, TokenId token,
                                  std::optional<std::string> stop_string) const;

  SequenceId id_;
  std::int32_t index_;
  bool finished_ = false;
  sampling::SequenceSampler sampler_;
  std::optional<text::TextStream> text_;
};

class ActiveRequest {
 public:
  // Branch i is sequence ids[i]. `tokenizer` may be null.
  ActiveRequest(std::shared_ptr<Request> request, std::int32_t prompt_tokens,
                const std::vector<SequenceId>& ids, const text::Tokenizer* tokenizer);

  const Request& request() const { return *request_; }
  const std::shared_ptr<TokenStream>& stream() const { return request_->stream; }
  std::vector<Branch>& branches() { return branches_; }
  const std::vector<Branch>& branches() const { return branches_; }
  std::int32_t prompt_tokens() const { return prompt_tokens_; }
  std::int64_t generation_tokens() const;

  // It was scheduled for the first time.
  void Start(absl::Time now, std::int32_t cached_tokens);
  bool started() const { return started_.has_value(); }
  absl::Duration queue_time() const { return *started_ - request_->arrival; }

  // --- Log-probabilities of the prompt --------------------------------------------------------
  // The prompt position that is to be scored next; prompt_tokens() when none is (any more).
  std::int32_t next_prompt_logprob() const { return next_prompt_logprob_; }
  // The score of that position. The last one makes them part of the pending output.
  void AddPromptLogprob(const kernels::SampleResult& result);

  // --- Output ---------------------------------------------------------------------------------
  // Takes a branch's next token; true when the branch ended with it.
  bool AcceptToken(Branch& branch, const kernels::SampleResult& result, absl::Time now);
  // Ends a branch for a reason from outside.
  void FinishBranch(Branch& branch, Ending ending, absl::Time now);
  // Ends the request; nothing follows.
  void Terminate(absl::Status status);

  bool all_finished() const { return num_finished_ == branches_.size(); }
  // Terminate was called.
  bool ended() const { return ended_; }
  // What an ended request counts as: after OK as a length when any branch ended by length.
  Outcome outcome() const;

  // REQUIRES for the next three: a token was accepted.
  absl::Duration prefill_time() const { return first_token_ - *started_; }
  absl::Duration decode_time() const { return last_token_ - first_token_; }
  absl::Duration time_to_first_token() const { return first_token_ - request_->arrival; }

  // Output since it was last pushed to the stream.
  StreamChunk pending;
  bool dirty = false;  // In the loop's list of requests whose output is to be pushed.

 private:
  Delta& PendingDelta(std::int32_t index);
  void PublishPromptLogprobsIfComplete();

  std::shared_ptr<Request> request_;
  std::int32_t prompt_tokens_;
  std::vector<Branch> branches_;
  std::optional<absl::Time> started_;
  std::int32_t cached_tokens_ = 0;
  absl::Time first_token_ = absl::InfinitePast();
  absl::Time last_token_ = absl::InfinitePast();
  std::int32_t next_prompt_logprob_;
  std::vector<sampling::PositionLogprobs> prompt_logprobs_;
  std::size_t num_finished_ = 0;
  bool any_length_ = false;
  bool ended_ = false;
  absl::Status status_;
};

}  // namespace quire::engine
