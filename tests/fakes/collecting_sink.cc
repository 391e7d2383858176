#include "tests/fakes/collecting_sink.h"

#include <gtest/gtest.h>

#include <utility>

namespace quire::fakes {

void Answer::Add(engine::StreamChunk chunk) {
  const auto require = [this](bool condition, const char* rule) {
    if (!condition) violations.emplace_back(rule);
  };
  if (chunk.empty()) return;
  ++num_chunks;
  require(!terminal, "output after the terminal status");
  if (chunk.accepted) {
    require(!accepted, "accepted twice");
    require(branches.empty(), "accepted after a delta");
    accepted = std::move(chunk.accepted);
  }
  if (!chunk.prompt_logprobs.empty()) {
    require(prompt_logprobs.empty(), "prompt log-probabilities twice");
    prompt_logprobs = std::move(chunk.prompt_logprobs);
  }
  std::int32_t last_index = -1;
  for (engine::Delta& delta : chunk.deltas) {
    require(accepted.has_value(), "delta before accepted");
    require(delta.index > last_index, "deltas not in ascending order of index");
    last_index = delta.index;
    Branch& branch = branches[delta.index];
    require(!branch.finished, "delta after finished");
    branch.token_ids.insert(branch.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
    branch.text += delta.text;
    branch.logprobs.insert(branch.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  }
  for (engine::Finished& finished : chunk.finished) {
    Branch& branch = branches[finished.index];
    require(!branch.finished, "finished twice");
    branch.finished = std::move(finished);
  }
  if (!chunk.terminal) return;
  terminal = std::move(chunk.terminal);
  for (const auto& [index, branch] : branches) {
    require(!terminal->ok() || branch.finished, "OK with an unfinished branch");
  }
}

void CollectingSink::OnOutput(std::vector<std::shared_ptr<engine::TokenStream>> streams) {
  absl::MutexLock lock(&mutex_);
  for (const std::shared_ptr<engine::TokenStream>& stream : streams) {
    answers_[stream].Add(stream->Take());
  }
}

Answer CollectingSink::Now(const std::shared_ptr<engine::TokenStream>& stream) const {
  absl::MutexLock lock(&mutex_);
  const auto it = answers_.find(stream);
  return it == answers_.end() ? Answer() : it->second;
}

Answer CollectingSink::Wait(const std::shared_ptr<engine::TokenStream>& stream,
                            absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = answers_.find(stream);
    return it != answers_.end() && it->second.terminal.has_value();
  };
  EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&over), timeout))
      << stream->request_id() << " has no terminal status";
  const auto it = answers_.find(stream);
  return it == answers_.end() ? Answer() : it->second;
}

Answer CollectingSink::WaitForTokens(const std::shared_ptr<engine::TokenStream>& stream,
                                     std::size_t count, absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = answers_.find(stream);
    if (it == answers_.end()) return false;
    const auto branch = it->second.branches.find(0);
    return it->second.terminal.has_value() ||
           (branch != it->second.branches.end() && branch->second.token_ids.size() >= count);
  };
  EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), timeout))
      << stream->request_id() << " has not produced " << count << " tokens";
  const auto it = answers_.find(stream);
  return it == answers_.end() ? Answer() : it->second;
}

std::vector<std::string> CollectingSink::Violations() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> all;
  for (const auto& [stream, answer] : answers_) {
    for (const std::string& violation : answer.violations) {
      all.push_back(stream->request_id() + ": " + violation);
    }
  }
  return all;
}

}  // namespace quire::fakes
