// A model without weights that still notices every mistake in block tables, copies and positions.
//
// Each KV slot holds its token, its position and a hash of the whole prefix up to it, which is
// computed from the slot before it as the block table names it. A logits row is a function of that
// hash; before it is made, every slot of the sequence is read through the table and checked. So the
// answer depends on the sequence's own tokens only, as a real model's does, and foreign, stale or
// uncopied blocks are found at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/model_runner.h"

namespace quire::fakes {

struct FakeModelOptions {
  std::int32_t vocab_size = 300;
  std::int32_t max_model_len = 1024;
  std::int32_t block_size = 16;
  std::int64_t num_blocks = 64;
};

// What a test may do to a running FakeModelRunner, and what it may ask. Shared with the runner,
// which the engine owns. Thread: any.
class FakeModelControl {
 public:
  // Called on the engine thread at the start of every step; may wait, may advance a clock, may
  // throw. An error fails the step.
  using OnStep = std::function<absl::Status(const kernels::BatchView&)>;
  void SetOnStep(OnStep on_step);
  // After token `from` comes `to`, whatever went before (the greedy choice).
  void SetSuccessor(TokenId from, TokenId to);
  // A context that holds `token` gives NaN logits.
  void SetPoison(TokenId token);

  // What a model does while it computes (ModelRunner::progress).
  void ReportProgress() { ++progress_; }

  std::int64_t num_steps() const;
  std::int64_t num_computed_tokens() const;
  // What was found wrong with tables, copies or positions; empty when all was right.
  std::vector<std::string> faults() const;

 private:
  friend class FakeModelRunner;
  std::atomic<std::uint64_t> progress_ = 0;
  mutable absl::Mutex mutex_;
  OnStep on_step_ ABSL_GUARDED_BY(mutex_);
  std::map<TokenId, TokenId> successors_ ABSL_GUARDED_BY(mutex_);
  TokenId poison_ ABSL_GUARDED_BY(mutex_) = -1;
  std::int64_t num_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t num_computed_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> faults_ ABSL_GUARDED_BY(mutex_);
};

class FakeModelRunner final : public engine::ModelRunner {
 public:
  FakeModelRunner(const FakeModelOptions& options, std::shared_ptr<FakeModelControl> control);

  std::int32_t vocab_size() const override { return options_.vocab_size; }
  std::int32_t max_model_len() const override { return options_.max_model_len; }
  const KvGeometry& kv_geometry() const override { return geometry_; }
  std::int64_t num_blocks() const override { return options_.num_blocks; }
  absl::Status Step(const kernels::BatchView& batch, std::span<const kernels::SampleRow> rows,
                    std::span<kernels::SampleResult> results) override;
  std::uint64_t progress() const override { return control_->progress_; }

  // The logits after `context`, successors and poison aside.
  static std::vector<float> Logits(std::span<const TokenId> context, std::int32_t vocab_size);
  // `count` greedy tokens after `prompt`.
  static std::vector<TokenId> Greedy(std::vector<TokenId> prompt, std::int32_t count,
                                     std::int32_t vocab_size);

 private:
  struct Slot {
    TokenId token = -1;
    std::int32_t position = -1;
    std::uint64_t prefix_hash = 0;
  };

  void Write(const kernels::BatchView& batch, std::int32_t sequence);
  void Check(const kernels::BatchView& batch, std::int32_t sequence, std::int32_t end);
  Slot& At(const kernels::BatchView& batch, std::int32_t sequence, std::int32_t position);
  void Fault(std::string what);
  void MakeLogits(const kernels::BatchView& batch, std::int32_t sequence, std::int32_t position);

  const FakeModelOptions options_;
  const std::shared_ptr<FakeModelControl> control_;
  KvGeometry geometry_;
  std::vector<Slot> kv_;
  Slot nowhere_;  // Stands for a slot that the table does not have.
  std::vector<float> logits_;
  kernels::SampleScratch scratch_;
};

}  // namespace quire::fakes
