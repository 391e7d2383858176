#include "engine/token_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire::engine {
namespace {

template <class T>
void AppendMoved(std::vector<T>& target, std::vector<T>& source) {
  if (target.empty()) {
    target = std::move(source);
  } else {
    target.insert(target.end(), std::make_move_iterator(source.begin()),
                  std::make_move_iterator(source.end()));
  }
  source.clear();
}

}  // namespace

StreamChunk TokenStream::Take() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(pending_, StreamChunk());
}

bool TokenStream::terminated() const {
  absl::MutexLock lock(&mutex_);
  return terminated_;
}

std::int64_t TokenStream::num_pending_tokens() const {
  absl::MutexLock lock(&mutex_);
  std::int64_t tokens = 0;
  for (const Delta& delta : pending_.deltas) {
    tokens += static_cast<std::int64_t>(delta.token_ids.size());
  }
  return tokens;
}

void TokenStream::Push(StreamChunk& chunk) {
  {
    absl::MutexLock lock(&mutex_);
    if (!terminated_) {
      if (chunk.accepted) pending_.accepted = std::move(chunk.accepted);
      AppendMoved(pending_.prompt_logprobs, chunk.prompt_logprobs);
      for (Delta& delta : chunk.deltas) Merge(std::move(delta));
      AppendMoved(pending_.finished, chunk.finished);
      if (chunk.terminal) {
        pending_.terminal = std::move(chunk.terminal);
        terminated_ = true;
      }
    }
  }
  chunk.accepted.reset();
  chunk.prompt_logprobs.clear();
  chunk.deltas.clear();
  chunk.finished.clear();
  chunk.terminal.reset();
}

void TokenStream::PushAccepted(Accepted accepted) {
  StreamChunk chunk;
  chunk.accepted = std::move(accepted);
  Push(chunk);
}

void TokenStream::PushPromptLogprobs(std::vector<sampling::PositionLogprobs> logprobs) {
  StreamChunk chunk;
  chunk.prompt_logprobs = std::move(logprobs);
  Push(chunk);
}

void TokenStream::PushDelta(Delta delta) {
  StreamChunk chunk;
  chunk.deltas.push_back(std::move(delta));
  Push(chunk);
}

void TokenStream::PushFinished(Finished finished) {
  StreamChunk chunk;
  chunk.finished.push_back(std::move(finished));
  Push(chunk);
}

void TokenStream::PushTerminal(absl::Status status) {
  StreamChunk chunk;
  chunk.terminal = std::move(status);
  Push(chunk);
}

void TokenStream::Merge(Delta&& delta) {
  const auto at = std::lower_bound(
      pending_.deltas.begin(), pending_.deltas.end(), delta.index,
      [](const Delta& pending, std::int32_t index) { return pending.index < index; });
  if (at == pending_.deltas.end() || at->index != delta.index) {
    pending_.deltas.insert(at, std::move(delta));
    return;
  }
  AppendMoved(at->token_ids, delta.token_ids);
  at->text += delta.text;
  AppendMoved(at->logprobs, delta.logprobs);
}

}  // namespace quire::engine
