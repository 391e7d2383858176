#include "simulator/scripted_sequences.h"

namespace quire::simulator {

SequenceId ScriptedSequences::Add(std::int32_t index, const Request& request) {
  const SequenceId first{sequences_.size()};
  for (std::int32_t branch = 0; branch < request.num_branches; ++branch) {
    sequences_.push_back({.index = index, .request = &request, .branch = branch});
  }
  return first;
}

ScriptedSequences::Output ScriptedSequences::Next(SequenceId id) {
  Sequence& sequence = sequences_[id.value()];
  const TokenId token = sequence.request->OutputToken(sequence.branch, sequence.num_outputs++);
  return {token, sequence.num_outputs >= sequence.request->output_len};
}

}  // namespace quire::simulator
