#include "tests/fakes/fake_model_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/status.h"

namespace quire::fakes {
namespace {

// splitmix64's finaliser.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t Extend(std::uint64_t prefix_hash, TokenId token) {
  return Mix(prefix_hash ^ Mix(static_cast<std::uint64_t>(token) + 1));
}

void FillLogits(std::uint64_t prefix_hash, std::span<float> logits) {
  std::uint64_t state = prefix_hash;
  for (float& logit : logits) {
    state = Mix(state);
    logit = static_cast<float>(state >> 40) / static_cast<float>(1 << 24) * 4;  // [0, 4)
  }
}

}  // namespace

void FakeModelControl::SetOnStep(OnStep on_step) {
  absl::MutexLock lock(&mutex_);
  on_step_ = std::move(on_step);
}

void FakeModelControl::SetSuccessor(TokenId from, TokenId to) {
  absl::MutexLock lock(&mutex_);
  successors_[from] = to;
}

void FakeModelControl::SetPoison(TokenId token) {
  absl::MutexLock lock(&mutex_);
  poison_ = token;
}

std::int64_t FakeModelControl::num_steps() const {
  absl::MutexLock lock(&mutex_);
  return num_steps_;
}

std::int64_t FakeModelControl::num_computed_tokens() const {
  absl::MutexLock lock(&mutex_);
  return num_computed_tokens_;
}

std::vector<std::string> FakeModelControl::faults() const {
  absl::MutexLock lock(&mutex_);
  return faults_;
}

FakeModelRunner::FakeModelRunner(const FakeModelOptions& options,
                                 std::shared_ptr<FakeModelControl> control)
    : options_(options),
      control_(std::move(control)),
      geometry_{.num_layers = 1,
                .num_kv_heads = 1,
                .k_dim = 8,
                .v_dim = 8,
                .block_size = options.block_size},
      kv_(static_cast<std::size_t>(options.num_blocks * options.block_size)),
      logits_(static_cast<std::size_t>(options.vocab_size)) {}

absl::Status FakeModelRunner::Step(const kernels::BatchView& batch,
                                   std::span<const kernels::SampleRow> rows,
                                   std::span<kernels::SampleResult> results) {
  FakeModelControl::OnStep on_step;
  {
    absl::MutexLock lock(&control_->mutex_);
    on_step = control_->on_step_;
    ++control_->num_steps_;
    control_->num_computed_tokens_ += batch.num_tokens();
  }
  if (on_step) QUIRE_RETURN_IF_ERROR(on_step(batch));

  const auto block_size = static_cast<std::ptrdiff_t>(options_.block_size);
  for (const kernels::BlockCopy& copy : batch.copies) {
    std::copy_n(kv_.begin() + copy.source * block_size, block_size,
                kv_.begin() + copy.target * block_size);
  }
  for (std::int32_t s = 0; s < batch.num_sequences(); ++s) Write(batch, s);

  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int32_t row = batch.logits_rows[i];
    const auto after = std::upper_bound(batch.q_indptr.begin(), batch.q_indptr.end(), row);
    const auto sequence = static_cast<std::int32_t>(after - batch.q_indptr.begin()) - 1;
    MakeLogits(batch, sequence, batch.positions[static_cast<std::size_t>(row)]);
    kernels::SampleOne(logits_, rows[i], scratch_, results[i]);
  }
  return absl::OkStatus();
}

FakeModelRunner::Slot& FakeModelRunner::At(const kernels::BatchView& batch, std::int32_t sequence,
                                           std::int32_t position) {
  const auto s = static_cast<std::size_t>(sequence);
  const std::int32_t offset = position - batch.first_position[s];
  const std::int32_t entry = batch.block_indptr[s] + offset / options_.block_size;
  if (offset < 0 || entry >= batch.block_indptr[s + 1]) {
    Fault(fmt::format("position {} has no block", position));
    return nowhere_;
  }
  const std::int32_t block = batch.block_ids[static_cast<std::size_t>(entry)];
  return kv_[static_cast<std::size_t>(block * options_.block_size + offset % options_.block_size)];
}

void FakeModelRunner::Write(const kernels::BatchView& batch, std::int32_t sequence) {
  const auto s = static_cast<std::size_t>(sequence);
  for (std::int32_t row = batch.q_indptr[s]; row < batch.q_indptr[s + 1]; ++row) {
    const std::int32_t position = batch.positions[static_cast<std::size_t>(row)];
    const TokenId token = batch.token_ids[static_cast<std::size_t>(row)];
    const std::uint64_t before = position == 0 ? 0 : At(batch, sequence, position - 1).prefix_hash;
    At(batch, sequence, position) = {
        .token = token, .position = position, .prefix_hash = Extend(before, token)};
  }
}

void FakeModelRunner::Check(const kernels::BatchView& batch, std::int32_t sequence,
                            std::int32_t end) {
  const std::int32_t first = batch.first_position[static_cast<std::size_t>(sequence)];
  std::uint64_t hash = 0;
  for (std::int32_t position = first; position < end; ++position) {
    const Slot& slot = At(batch, sequence, position);
    hash = position == first && first > 0 ? slot.prefix_hash : Extend(hash, slot.token);
    if (slot.position != position || slot.prefix_hash != hash) {
      Fault(fmt::format("position {} reads a slot written for position {} of another sequence",
                        position, slot.position));
      return;
    }
  }
}

void FakeModelRunner::MakeLogits(const kernels::BatchView& batch, std::int32_t sequence,
                                 std::int32_t position) {
  Check(batch, sequence, position + 1);
  const Slot& last = At(batch, sequence, position);
  FillLogits(last.prefix_hash, logits_);
  TokenId poison = -1;
  {
    absl::MutexLock lock(&control_->mutex_);
    const auto it = control_->successors_.find(last.token);
    if (it != control_->successors_.end()) logits_[static_cast<std::size_t>(it->second)] = 100;
    poison = control_->poison_;
  }
  if (poison < 0) return;
  for (std::int32_t p = 0; p <= position; ++p) {
    if (At(batch, sequence, p).token == poison) {
      std::fill(logits_.begin(), logits_.end(), std::numeric_limits<float>::quiet_NaN());
      return;
    }
  }
}

void FakeModelRunner::Fault(std::string what) {
  absl::MutexLock lock(&control_->mutex_);
  control_->faults_.push_back(std::move(what));
}

std::vector<float> FakeModelRunner::Logits(std::span<const TokenId> context,
                                           std::int32_t vocab_size) {
  std::uint64_t hash = 0;
  for (const TokenId token : context) hash = Extend(hash, token);
  std::vector<float> logits(static_cast<std::size_t>(vocab_size));
  FillLogits(hash, logits);
  return logits;
}

std::vector<TokenId> FakeModelRunner::Greedy(std::vector<TokenId> prompt, std::int32_t count,
                                             std::int32_t vocab_size) {
  std::vector<TokenId> answer;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::vector<float> logits = Logits(prompt, vocab_size);
    const auto best = std::max_element(logits.begin(), logits.end());
    answer.push_back(static_cast<TokenId>(best - logits.begin()));
    prompt.push_back(answer.back());
  }
  return answer;
}

}  // namespace quire::fakes
