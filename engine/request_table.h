// The requests that the engine thread holds, found by request or by sequence.
//
// Thread: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "engine/active_request.h"

namespace quire::engine {

class RequestTable {
 public:
  struct Entry {
    ActiveRequest* request = nullptr;
    Branch* branch = nullptr;
    explicit operator bool() const { return request != nullptr; }
  };

  // Gives every branch a sequence id that was never used before. `tokenizer` may be null.
  ActiveRequest& Add(std::shared_ptr<Request> request, std::int32_t prompt_tokens,
                     const text::Tokenizer* tokenizer);
  void Erase(const ActiveRequest& request);

  // Empty (null) when unknown. Pointers live until Erase.
  Entry Find(SequenceId id) const;
  ActiveRequest* Find(const Request& request) const;

  std::vector<ActiveRequest*> All() const;
  std::size_t size() const { return requests_.size(); }

 private:
  absl::flat_hash_map<const Request*, std::unique_ptr<ActiveRequest>> requests_;
  absl::flat_hash_map<SequenceId, Entry> sequences_;
  std::uint64_t next_sequence_id_ = 1;
};

}  // namespace quire::engine
