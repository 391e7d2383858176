#include "engine/request_ledger.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace quire::engine {

Outcome OutcomeOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return Outcome::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kDeadlineExceeded;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return Outcome::kFailed;
    default:
      return Outcome::kRefused;
  }
}

void RequestLedger::CountRefused() {
  absl::MutexLock lock(&mutex_);
  ++counts_.received;
  ++counts_.refused;
}

absl::Status RequestLedger::CheckCaps(const std::string& id, std::int32_t branches,
                                      std::int64_t prompt_tokens) const {
  if (!refusal_.ok()) return refusal_;
  if (by_id_.contains(id)) return AlreadyExists("request_id is in use by a live request");
  if (counts_.queued == 0) return absl::OkStatus();
  if (queued_branches_ + branches > limits_.max_queued_requests) {
    return ResourceExhausted("queue full: {} of {} places are taken, this request needs {}",
                             queued_branches_, limits_.max_queued_requests, branches);
  }
  if (queued_tokens_ + prompt_tokens > limits_.max_queued_prompt_tokens) {
    return ResourceExhausted("queue full: {} of {} prompt tokens wait, this request has about {}",
                             queued_tokens_, limits_.max_queued_prompt_tokens, prompt_tokens);
  }
  return absl::OkStatus();
}

absl::Status RequestLedger::Reserve(const std::shared_ptr<Request>& request, std::int32_t branches,
                                    std::int64_t prompt_tokens) {
  absl::MutexLock lock(&mutex_);
  ++counts_.received;
  if (absl::Status status = CheckCaps(request->id(), branches, prompt_tokens); !status.ok()) {
    ++counts_.refused;
    return status;
  }
  const TokenStream* key = request->stream.get();
  by_id_[request->id()] = key;
  live_[key] = {.request = request, .branches = branches, .prompt_tokens = prompt_tokens};
  ++counts_.queued;
  queued_branches_ += branches;
  queued_tokens_ += prompt_tokens;
  ++undelivered_;
  return absl::OkStatus();
}

bool RequestLedger::SetPromptTokens(const Request& request, std::int64_t prompt_tokens) {
  absl::MutexLock lock(&mutex_);
  const auto it = live_.find(request.stream.get());
  if (it == live_.end()) return false;
  queued_tokens_ += prompt_tokens - it->second.prompt_tokens;
  it->second.prompt_tokens = prompt_tokens;
  return true;
}

void RequestLedger::Start(const Request& request) {
  absl::MutexLock lock(&mutex_);
  const auto it = live_.find(request.stream.get());
  QUIRE_CHECK(it != live_.end() && it->second.phase == Phase::kQueued);
  LeaveQueue(it->second);
  it->second.phase = Phase::kRunning;
  ++counts_.running;
}

void RequestLedger::LeaveQueue(const Entry& entry) {
  --counts_.queued;
  queued_branches_ -= entry.branches;
  queued_tokens_ -= entry.prompt_tokens;
}

bool RequestLedger::Finish(const Request& request, Outcome outcome) {
  absl::MutexLock lock(&mutex_);
  const auto it = live_.find(request.stream.get());
  if (it == live_.end()) return false;
  if (it->second.phase == Phase::kQueued) {
    LeaveQueue(it->second);
  } else {
    --counts_.running;
  }
  switch (outcome) {
    case Outcome::kStop:
      ++counts_.finished_stop;
      break;
    case Outcome::kLength:
      ++counts_.finished_length;
      break;
    case Outcome::kCancelled:
      ++counts_.cancelled;
      break;
    case Outcome::kDeadlineExceeded:
      ++counts_.deadline_exceeded;
      break;
    case Outcome::kRefused:
      ++counts_.refused;
      break;
    case Outcome::kFailed:
      ++counts_.failed;
      break;
  }
  ReleaseId(request);
  live_.erase(it);
  return true;
}

void RequestLedger::ReleaseId(const Request& request) {
  const auto it = by_id_.find(request.id());
  if (it != by_id_.end() && it->second == request.stream.get()) by_id_.erase(it);
}

std::shared_ptr<Request> RequestLedger::ClaimAbort(std::string_view id) {
  absl::MutexLock lock(&mutex_);
  const auto it = by_id_.find(AsAbsl(id));
  return it == by_id_.end() ? nullptr : ClaimLocked(*it->second);
}

std::shared_ptr<Request> RequestLedger::ClaimAbort(const TokenStream& stream) {
  absl::MutexLock lock(&mutex_);
  return ClaimLocked(stream);
}

std::shared_ptr<Request> RequestLedger::ClaimLocked(const TokenStream& stream) {
  const auto it = live_.find(&stream);
  if (it == live_.end() || it->second.abort_sent) return nullptr;
  it->second.abort_sent = true;
  ReleaseId(*it->second.request);
  return it->second.request;
}

bool RequestLedger::IsLive(const Request& request) const {
  absl::MutexLock lock(&mutex_);
  return live_.contains(request.stream.get());
}

std::vector<std::shared_ptr<Request>> RequestLedger::Live() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Request>> live;
  live.reserve(live_.size());
  for (const auto& [stream, entry] : live_) live.push_back(entry.request);
  return live;
}

RequestCounts RequestLedger::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

void RequestLedger::Close(absl::Status refusal) {
  absl::MutexLock lock(&mutex_);
  if (refusal_.ok()) refusal_ = std::move(refusal);
}

bool RequestLedger::closed() const {
  absl::MutexLock lock(&mutex_);
  return !refusal_.ok();
}

void RequestLedger::Delivered(std::int64_t num_requests) {
  absl::MutexLock lock(&mutex_);
  undelivered_ -= num_requests;
  QUIRE_CHECK(undelivered_ >= 0);
}

bool RequestLedger::WaitUntilDelivered(absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(this, &RequestLedger::AllDelivered), timeout);
}

}  // namespace quire::engine
