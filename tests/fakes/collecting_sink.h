// An OutputSink that reads every stream at once, joins what it reads and checks the rules of
// engine/token_stream.h on the way.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/token_stream.h"

namespace quire::fakes {

// All that a stream has said so far.
struct Answer {
  struct Branch {
    std::vector<TokenId> token_ids;
    std::string text;
    std::vector<engine::sampling::PositionLogprobs> logprobs;
    std::optional<engine::Finished> finished;
  };
  std::optional<engine::Accepted> accepted;
  std::vector<engine::sampling::PositionLogprobs> prompt_logprobs;
  std::map<std::int32_t, Branch> branches;
  std::optional<absl::Status> terminal;
  std::int64_t num_chunks = 0;
  std::vector<std::string> violations;  // Of the stream's rules.

  // Joins `chunk`.
  void Add(engine::StreamChunk chunk);
};

// Thread: any.
class CollectingSink final : public engine::OutputSink {
 public:
  void OnOutput(std::vector<std::shared_ptr<engine::TokenStream>> streams) override;

  // What `stream` has said so far.
  Answer Now(const std::shared_ptr<engine::TokenStream>& stream) const;
  // Waits until `stream` is over; fails the test after `timeout`.
  Answer Wait(const std::shared_ptr<engine::TokenStream>& stream,
              absl::Duration timeout = absl::Seconds(60)) const;
  // Waits until branch 0 has at least `count` tokens or the stream is over.
  Answer WaitForTokens(const std::shared_ptr<engine::TokenStream>& stream, std::size_t count,
                       absl::Duration timeout = absl::Seconds(60)) const;

  // Of all streams.
  std::vector<std::string> Violations() const;

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::shared_ptr<engine::TokenStream>, Answer> answers_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace quire::fakes
