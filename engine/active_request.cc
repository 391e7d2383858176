#include "engine/active_request.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/sampling/logprobs.h"

namespace quire::engine {
namespace {

text::TextStreamOptions TextOptions(const sampling::SamplingParams& params) {
  return {.special_tokens =
              params.skip_special_tokens ? text::SpecialTokens::kSkip : text::SpecialTokens::kKeep,
          .stop_in_output = params.include_stop_str_in_output ? text::StopInOutput::kInclude
                                                              : text::StopInOutput::kExclude,
          .min_tokens = params.min_tokens};
}

bool IsStopId(sampling::FinishCause cause) {
  return cause == sampling::FinishCause::kEos || cause == sampling::FinishCause::kStopToken;
}

}  // namespace

Branch::Branch(const Request& request, std::int32_t index, SequenceId id,
               const text::Tokenizer* tokenizer)
    : id_(id), index_(index), sampler_(request.sampling, index) {
  const sampling::SamplingParams& params = request.sampling->params();
  if (tokenizer != nullptr && params.detokenize) {
    text_.emplace(*tokenizer, request.stop_strings, TextOptions(params));
  }
}

std::optional<Ending> Branch::Accept(const kernels::SampleResult& result, Delta& delta) {
  QUIRE_DCHECK(!finished_);
  const sampling::SamplingParams& params = sampler_.request().params();
  const sampling::FinishCause cause = sampler_.Accept(result.token);
  delta.token_ids.push_back(result.token);
  if (params.logprobs) delta.logprobs.push_back(sampling::ToPositionLogprobs(result));
  std::optional<std::string> stop_string;
  if (text_ && (!IsStopId(cause) || params.include_stop_str_in_output)) {
    stop_string = text_->Append(result.token, delta.text);
  }
  return EndingFor(cause, result.token, std::move(stop_string));
}

std::optional<Ending> Branch::EndingFor(sampling::FinishCause cause, TokenId token,
                                        std::optional<std::string> stop_string) const {
  Ending ending;
  if (cause == sampling::FinishCause::kEos) {
    ending.matched_stop.eos_token_id = token;
  } else if (cause == sampling::FinishCause::kStopToken) {
    ending.matched_stop.stop_token_id = token;
  } else if (stop_string) {
    ending.matched_stop.stop_string = std::move(stop_string);
  } else if (cause == sampling::FinishCause::kMaxTokens) {
    ending.reason = FinishReason::kLength;
  } else if (cause == sampling::FinishCause::kMaxModelLen) {
    ending.reason = FinishReason::kLength;
    ending.detail = "max_model_len";
  } else {
    return std::nullopt;
  }
  return ending;
}

void Branch::Finish(Delta& delta) {
  finished_ = true;
  if (text_) text_->Finish(delta.text);
}

ActiveRequest::ActiveRequest(std::shared_ptr<Request> request, std::int32_t prompt_tokens,
                             const std::vector<SequenceId>& ids, const text::Tokenizer* tokenizer)
    : request_(std::move(request)),
      prompt_tokens_(prompt_tokens),
      next_prompt_logprob_(prompt_tokens_) {
  branches_.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    branches_.emplace_back(*request_, static_cast<std::int32_t>(i), ids[i], tokenizer);
  }
  if (request_->sampling->params().prompt_logprobs) {
    prompt_logprobs_.emplace_back();  // Nothing predicts position 0.
    next_prompt_logprob_ = 1;
    PublishPromptLogprobsIfComplete();
  }
}

std::int64_t ActiveRequest::generation_tokens() const {
  std::int64_t tokens = 0;
  for (const Branch& branch : branches_) tokens += branch.num_output_tokens();
  return tokens;
}

void ActiveRequest::Start(absl::Time now, std::int32_t cached_tokens) {
  started_ = now;
  cached_tokens_ = cached_tokens;
  Accepted& accepted = pending.accepted.emplace();
  accepted.prompt_tokens = prompt_tokens_;
  accepted.cached_tokens = cached_tokens;
  accepted.queue_time = queue_time();
  if (request_->encoded_here) accepted.prompt_token_ids = std::move(request_->prompt);
}

void ActiveRequest::AddPromptLogprob(const kernels::SampleResult& result) {
  prompt_logprobs_.push_back(sampling::ToPositionLogprobs(result));
  ++next_prompt_logprob_;
  PublishPromptLogprobsIfComplete();
}

void ActiveRequest::PublishPromptLogprobsIfComplete() {
  if (next_prompt_logprob_ == prompt_tokens_) {
    pending.prompt_logprobs = std::move(prompt_logprobs_);
  }
}

bool ActiveRequest::AcceptToken(Branch& branch, const kernels::SampleResult& result,
                                absl::Time now) {
  if (first_token_ == absl::InfinitePast()) first_token_ = now;
  last_token_ = now;
  branch.last_token_time = now;
  std::optional<Ending> ending = branch.Accept(result, PendingDelta(branch.index()));
  if (!ending) return false;
  FinishBranch(branch, *std::move(ending), now);
  return true;
}

void ActiveRequest::FinishBranch(Branch& branch, Ending ending, absl::Time now) {
  branch.Finish(PendingDelta(branch.index()));
  ++num_finished_;
  any_length_ |= ending.reason == FinishReason::kLength;
  const bool has_tokens = branch.num_output_tokens() > 0;
  Finished& finished = pending.finished.emplace_back();
  finished.index = branch.index();
  finished.reason = ending.reason;
  finished.detail = std::move(ending.detail);
  finished.matched_stop = std::move(ending.matched_stop);
  finished.prompt_tokens = prompt_tokens_;
  finished.cached_tokens = cached_tokens_;
  finished.completion_tokens = branch.num_output_tokens();
  finished.seed = request_->seed;
  finished.timings = {
      .queue = queue_time(),
      .prefill = has_tokens ? prefill_time() : now - *started_,
      .decode = has_tokens ? branch.last_token_time - first_token_ : absl::ZeroDuration(),
      .time_to_first_token = has_tokens ? time_to_first_token() : now - request_->arrival,
      .num_preemptions = branch.num_preemptions,
      .num_blocks = branch.num_blocks};
}

void ActiveRequest::Terminate(absl::Status status) {
  if (ended_) return;
  ended_ = true;
  status_ = status;
  pending.terminal = std::move(status);
}

Outcome ActiveRequest::outcome() const {
  if (!status_.ok()) return OutcomeOf(status_);
  return any_length_ ? Outcome::kLength : Outcome::kStop;
}

Delta& ActiveRequest::PendingDelta(std::int32_t index) {
  const auto at =
      std::lower_bound(pending.deltas.begin(), pending.deltas.end(), index,
                       [](const Delta& delta, std::int32_t i) { return delta.index < i; });
  if (at != pending.deltas.end() && at->index == index) return *at;
  const auto added = pending.deltas.insert(at, Delta());
  added->index = index;
  return *added;
}

}  // namespace quire::engine
