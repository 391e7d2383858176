#include "engine/sampling/sequence_sampler.h"

#include <algorithm>
#include <utility>

#include "base/philox.h"

namespace quire::engine::sampling {

SequenceSampler::SequenceSampler(std::shared_ptr<const RequestSampling> request,
                                 std::int32_t branch)
    : request_(std::move(request)), branch_(static_cast<std::uint32_t>(branch)) {
  banned_.reserve(request_->stop_ids().size() + request_->bad_word_ids().size());
}

kernels::SampleRow SequenceSampler::NextRow() {
  banned_.clear();
  if (num_output_tokens_ < request_->params().min_tokens) {
    banned_.assign(request_->stop_ids().begin(), request_->stop_ids().end());
  }
  BanEndsOfBadWords();
  kernels::SampleRow row = request_->base_row();
  row.uniform =
      PhiloxUniform(request_->seed(), branch_, static_cast<std::uint64_t>(num_output_tokens_));
  row.output_counts = counts_;
  row.banned = banned_;
  return row;
}

void SequenceSampler::BanEndsOfBadWords() {
  for (const std::vector<TokenId>& word : request_->bad_word_ids()) {
    const std::size_t before = word.size() - 1;
    if (recent_.size() < before) continue;
    if (std::equal(recent_.end() - static_cast<std::ptrdiff_t>(before), recent_.end(),
                   word.begin())) {
      banned_.push_back(word.back());
    }
  }
}

FinishCause SequenceSampler::Accept(TokenId token) {
  ++num_output_tokens_;
  if (request_->uses_output_counts()) {
    const auto [at, is_new] = count_at_.try_emplace(token, counts_.size());
    if (is_new) counts_.push_back({token, 0});
    ++counts_[at->second].count;
  }
  if (request_->longest_bad_word() > 1) {
    if (recent_.size() == static_cast<std::size_t>(request_->longest_bad_word()) - 1) {
      recent_.erase(recent_.begin());
    }
    recent_.push_back(token);
  }
  return request_->CheckFinish(token, num_output_tokens_);
}

}  // namespace quire::engine::sampling
