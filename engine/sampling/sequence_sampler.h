// One branch of a request, as sampling sees it: turns the parameters and the branch's own output so
// far into the row that chooses its next token.
//
// What a branch draws depends on (seed, branch, number of output tokens) only. Preemption needs
// nothing here: the state follows the tokens that were accepted, not the steps that computed them.
//
// Thread: one at a time (the engine thread).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "engine/sampling/request_sampling.h"
#include "kernels/sample.h"

namespace quire::engine::sampling {

class SequenceSampler {
 public:
  // `branch` is in [0, n).
  SequenceSampler(std::shared_ptr<const RequestSampling> request, std::int32_t branch);

  // The row for the next output token. Its spans point into this object and the request: valid
  // until the next call of NextRow or Accept.
  kernels::SampleRow NextRow();

  // Takes the next output token and says whether the branch ends with it.
  FinishCause Accept(TokenId token);

  std::int32_t num_output_tokens() const { return num_output_tokens_; }
  const RequestSampling& request() const { return *request_; }

 private:
  void BanEndsOfBadWords();

  std::shared_ptr<const RequestSampling> request_;
  std::uint32_t branch_;
  std::int32_t num_output_tokens_ = 0;
  std::vector<TokenId> recent_;  // The newest output tokens, as many as bad words look back.
  std::vector<kernels::TokenCount> counts_;             // Only with output penalties:
  absl::flat_hash_map<TokenId, std::size_t> count_at_;  // index into counts_.
  std::vector<TokenId> banned_;
};

}  // namespace quire::engine::sampling
