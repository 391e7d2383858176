#include "engine/step_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "tests/fakes/fake_model_runner.h"

namespace quire::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StepLogTest : public ::testing::Test {
 protected:
  StepLogTest() {
    control_->SetOnStep([this](const kernels::BatchView&) {
      clock_.Advance(step_duration_);
      return step_status_;
    });
  }

  // A prompt of three tokens, or the token after it.
  absl::Status Step(bool decodes) {
    const std::int32_t length = decodes ? 4 : 3;
    const std::vector<TokenId> tokens =
        decodes ? std::vector<TokenId>{7} : std::vector<TokenId>{4, 5, 6};
    const std::vector<std::int32_t> positions =
        decodes ? std::vector<std::int32_t>{3} : std::vector<std::int32_t>{0, 1, 2};
    const std::int32_t q_indptr[] = {0, static_cast<std::int32_t>(tokens.size())};
    const std::int32_t block_indptr[] = {0, 1}, block_ids[] = {0}, first_position[] = {0};
    return runner_->Step({.token_ids = tokens,
                          .positions = positions,
                          .q_indptr = q_indptr,
                          .kv_lens = {&length, 1},
                          .block_indptr = block_indptr,
                          .block_ids = block_ids,
                          .first_position = first_position},
                         {}, {});
  }

  ManualClock clock_;
  absl::Duration step_duration_ = absl::Milliseconds(10);
  absl::Status step_status_;
  std::vector<TimedStep> steps_;
  const std::shared_ptr<fakes::FakeModelControl> control_ =
      std::make_shared<fakes::FakeModelControl>();
  std::unique_ptr<ModelRunner> runner_ =
      TimeSteps(std::make_unique<fakes::FakeModelRunner>(fakes::FakeModelOptions{}, control_),
                clock_, [this](const TimedStep& step) { steps_.push_back(step); });
};

TEST_F(StepLogTest, TellsWorkAndTime) {
  ASSERT_EQ(Step(/*decodes=*/false), absl::OkStatus());
  EXPECT_THAT(steps_, IsEmpty()) << "the next step may still follow at once";
  clock_.Advance(absl::Microseconds(900));
  step_duration_ = absl::Milliseconds(2);
  ASSERT_EQ(Step(/*decodes=*/true), absl::OkStatus());
  runner_.reset();
  ASSERT_EQ(steps_.size(), 2);
  EXPECT_EQ(steps_[0].prefill_tokens, 3);
  EXPECT_EQ(steps_[0].decode_sequences, 0);
  EXPECT_EQ(steps_[0].context_tokens, 3);
  EXPECT_EQ(steps_[0].duration, absl::Microseconds(10'900)) << "with the time between the steps";
  EXPECT_EQ(steps_[1].prefill_tokens, 0);
  EXPECT_EQ(steps_[1].decode_sequences, 1);
  EXPECT_EQ(steps_[1].context_tokens, 4);
  EXPECT_EQ(steps_[1].duration, absl::Milliseconds(2));
}

TEST_F(StepLogTest, AnIdleEngineIsNoPartOfAStep) {
  ASSERT_EQ(Step(/*decodes=*/false), absl::OkStatus());
  clock_.Advance(absl::Seconds(5));
  ASSERT_EQ(Step(/*decodes=*/true), absl::OkStatus());
  EXPECT_EQ(steps_[0].duration, absl::Milliseconds(10));
}

TEST_F(StepLogTest, AStepThatFailsIsNotTold) {
  step_status_ = Internal("broken");
  EXPECT_EQ(Step(/*decodes=*/false), step_status_);
  runner_.reset();
  EXPECT_THAT(steps_, IsEmpty());
}

TEST_F(StepLogTest, RefusesAFileThatCannotBeWritten) {
  EXPECT_EQ(LogSteps(std::move(runner_), clock_, "/none/steps").status().message(),
            "the step log /none/steps cannot be written");
}

}  // namespace
}  // namespace quire::engine
