#include "cli/bench/request_target.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/status.h"

namespace quire::cli::bench {
namespace {

using Past = RequestTargetOptions::Past;

template <class Items>
auto& At(Items& items, std::int32_t index) {
  return items[static_cast<std::size_t>(index)];
}

template <class Ids>
void Append(const Ids& ids, std::vector<TokenId>* tokens) {
  tokens->insert(tokens->end(), ids.begin(), ids.end());
}

}  // namespace

// From the thread that calls back to the load generator's.
class RequestTarget::Queue {
 public:
  struct Item {
    LoadEvent event;
    std::vector<TokenId> tokens = {};  // With kTokens.
  };

  void Push(Item item) {
    absl::MutexLock lock(&mutex_);
    items_.push_back(std::move(item));
  }
  void PushResponse(std::int32_t index, const v1::GenerateResponse& response) {
    Item item{.event = {.request = index, .time = Clock::Real().Now()}};
    if (response.has_delta() && response.delta().token_ids_size() > 0) {
      item.event.kind = LoadEvent::Kind::kTokens;
      item.event.num_tokens = response.delta().token_ids_size();
      Append(response.delta().token_ids(), &item.tokens);
    } else if (response.has_finished()) {
      const v1::Usage& usage = response.finished().usage();
      item.event.kind = LoadEvent::Kind::kFinished;
      item.event.prompt_tokens = usage.prompt_tokens();
      item.event.cached_tokens = usage.cached_tokens();
      item.event.completion_tokens = usage.completion_tokens();
    } else {
      return;
    }
    Push(std::move(item));
  }
  void PushDone(std::int32_t index, const absl::Status& status) {
    Push({.event = {.kind = LoadEvent::Kind::kDone,
                    .request = index,
                    .time = Clock::Real().Now(),
                    .status = status}});
  }
  std::vector<Item> Take(absl::Duration at_most) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(
                                +[](std::vector<Item>* items) { return !items->empty(); }, &items_),
                            at_most);
    return std::exchange(items_, {});
  }

 private:
  absl::Mutex mutex_;
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
};

RequestTarget::RequestTarget(Generate generate, std::vector<BenchRequest> requests,
                             const RequestTargetOptions& options)
    : generate_(std::move(generate)),
      requests_(std::move(requests)),
      options_(options),
      texts_(requests_.size()),
      answers_(requests_.size()),
      queue_(std::make_shared<Queue>()) {}

RequestTarget::~RequestTarget() = default;

absl::Time RequestTarget::Now() { return Clock::Real().Now(); }

void RequestTarget::Send(std::int32_t index) {
  const BenchRequest& request = At(requests_, index);
  std::vector<TokenId>& text = At(texts_, index);
  if (request.follows != kNoRequest) {
    const std::vector<TokenId>& answer = At(answers_, request.follows);
    if (answer.empty()) {
      queue_->PushDone(index, Aborted("the turn before this one has failed"));
      return;
    }
    text = At(texts_, request.follows);
    Append(answer, &text);
  }
  Append(request.prompt, &text);
  SendMessage(index);
}

void RequestTarget::SendMessage(std::int32_t index) {
  generate_(
      MakeMessage(index),
      [queue = queue_, index](const v1::GenerateResponse& response) {
        queue->PushResponse(index, response);
      },
      [queue = queue_, index](const server::CallOutcome& outcome) {
        queue->PushDone(index, outcome.status);
      });
}

v1::GenerateRequest RequestTarget::MakeMessage(std::int32_t index) const {
  const BenchRequest& request = At(requests_, index);
  v1::GenerateRequest message;
  std::vector<TokenId> prompt = At(texts_, index);
  std::int32_t max_tokens = request.output_len;
  if (options_.past == Past::kEveryToken) {
    Append(At(answers_, index), &prompt);
    max_tokens = 1;
  } else if (options_.past == Past::kSession) {
    std::int32_t first_turn = index;
    while (At(requests_, first_turn).follows != kNoRequest) {
      first_turn = At(requests_, first_turn).follows;
    }
    message.set_session_id("bench-" + std::to_string(first_turn));
    message.set_continue_session(first_turn != index);
    if (first_turn != index) prompt = request.prompt;
  }
  message.mutable_token_ids()->mutable_ids()->Assign(prompt.begin(), prompt.end());
  v1::SamplingParams* sampling = message.mutable_sampling();
  sampling->set_max_tokens(max_tokens);
  sampling->set_ignore_eos(options_.at_eos == RequestTargetOptions::AtEos::kGoOn);
  sampling->set_temperature(0);
  return message;
}

std::vector<LoadEvent> RequestTarget::WaitUntil(absl::Time until) {
  std::vector<LoadEvent> events;
  for (Queue::Item& item : queue_->Take(until - Now())) {
    Append(item.tokens, &At(answers_, item.event.request));
    if (options_.past == Past::kEveryToken && !BookToken(item.event)) continue;
    events.push_back(std::move(item.event));
  }
  return events;
}

bool RequestTarget::BookToken(LoadEvent& event) {
  const auto num_tokens = static_cast<std::int32_t>(At(answers_, event.request).size());
  const bool is_last = num_tokens == At(requests_, event.request).output_len;
  switch (event.kind) {
    case LoadEvent::Kind::kTokens:
      return true;
    case LoadEvent::Kind::kFinished:
      event.prompt_tokens = static_cast<std::int32_t>(At(texts_, event.request).size());
      event.completion_tokens = num_tokens;
      return is_last;
    case LoadEvent::Kind::kDone:
      if (is_last || !event.status.ok()) return true;
      SendMessage(event.request);
      return false;
  }
  return true;
}

}  // namespace quire::cli::bench
