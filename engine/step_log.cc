#include "engine/step_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <optional>
#include <utility>

#include "base/status.h"

namespace quire::engine {
namespace {

constexpr absl::Duration kAtOnce = absl::Milliseconds(1);

class TimedRunner final : public ModelRunner {
 public:
  TimedRunner(std::unique_ptr<ModelRunner> runner, Clock& clock,
              std::function<void(const TimedStep&)> on_step)
      : runner_(std::move(runner)), clock_(clock), on_step_(std::move(on_step)) {}
  ~TimedRunner() override {
    if (last_) on_step_(*last_);
  }

  std::int32_t vocab_size() const override { return runner_->vocab_size(); }
  std::int32_t max_model_len() const override { return runner_->max_model_len(); }
  const KvGeometry& kv_geometry() const override { return runner_->kv_geometry(); }
  std::int64_t num_blocks() const override { return runner_->num_blocks(); }
  std::uint64_t progress() const override { return runner_->progress(); }

  absl::Status Step(const kernels::BatchView& batch, std::span<const kernels::SampleRow> rows,
                    std::span<kernels::SampleResult> results) override {
    const absl::Time begin = clock_.Now();
    if (last_) {
      if (begin - end_ < kAtOnce) last_->duration = begin - begin_;
      on_step_(*last_);
      last_.reset();
    }
    QUIRE_RETURN_IF_ERROR(runner_->Step(batch, rows, results));
    begin_ = begin;
    end_ = clock_.Now();
    last_ = WorkOf(batch);
    last_->duration = end_ - begin_;
    return absl::OkStatus();
  }

 private:
  static TimedStep WorkOf(const kernels::BatchView& batch) {
    TimedStep step;
    for (std::size_t i = 0; i < batch.kv_lens.size(); ++i) {
      const std::int32_t num_tokens = batch.q_indptr[i + 1] - batch.q_indptr[i];
      (num_tokens == 1 ? step.decode_sequences : step.prefill_tokens) += num_tokens;
      step.context_tokens += batch.kv_lens[i];
    }
    return step;
  }

  const std::unique_ptr<ModelRunner> runner_;
  Clock& clock_;
  const std::function<void(const TimedStep&)> on_step_;
  std::optional<TimedStep> last_;  // Not told yet; from begin_ to end_.
  absl::Time begin_, end_;
};

}  // namespace

std::unique_ptr<ModelRunner> TimeSteps(std::unique_ptr<ModelRunner> runner, Clock& clock,
                                       std::function<void(const TimedStep&)> on_step) {
  return std::make_unique<TimedRunner>(std::move(runner), clock, std::move(on_step));
}

absl::StatusOr<std::unique_ptr<ModelRunner>> LogSteps(std::unique_ptr<ModelRunner> runner,
                                                      Clock& clock, const std::string& path) {
  auto file = std::make_shared<std::ofstream>(path);
  if (!*file) return Unavailable("the step log {} cannot be written", path);
  return TimeSteps(std::move(runner), clock, [file, path](const TimedStep& step) {
    if (!*file) return;
    *file << fmt::format(
        "{{\"prefill_tokens\":{},\"decode_sequences\":{},\"context_tokens\":{},\"seconds\":{}}}\n",
        step.prefill_tokens, step.decode_sequences, step.context_tokens,
        absl::ToDoubleSeconds(step.duration));
    if (!*file) spdlog::warn("the step log {} cannot be written any more", path);
  });
}

}  // namespace quire::engine
