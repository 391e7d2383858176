// The branches of all requests of one system, and what each of them answers: sequences that say
// what the workload tells them to.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "simulator/request.h"

namespace quire::simulator {

class ScriptedSequences {
 public:
  struct Sequence {
    std::int32_t index = 0;  // Of the request.
    const Request* request = nullptr;
    std::int32_t branch = 0;
    std::int32_t num_outputs = 0;
  };
  struct Output {
    TokenId token = 0;
    bool finished = false;
  };

  // Numbers the branches of a request from the id returned on.
  SequenceId Add(std::int32_t index, const Request& request);
  const Sequence& at(SequenceId id) const { return sequences_[id.value()]; }
  // The sequence's next token.
  Output Next(SequenceId id);

 private:
  std::vector<Sequence> sequences_;  // By id.
};

}  // namespace quire::simulator
