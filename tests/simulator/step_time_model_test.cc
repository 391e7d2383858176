#include "simulator/step_time_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "base/status.h"

namespace quire::simulator {
namespace {

using ::testing::HasSubstr;

// Steps as `model` would make them.
std::vector<MeasuredStep> StepsOf(const StepTimeModel& model, int count) {
  std::vector<MeasuredStep> steps;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
    MeasuredStep step;
    step.work.prefill_tokens = static_cast<std::int64_t>(PhiloxUniform(1, i, 0) * 512);
    step.work.decode_sequences = static_cast<std::int64_t>(PhiloxUniform(1, i, 1) * 64);
    step.work.context_tokens = static_cast<std::int64_t>(PhiloxUniform(1, i, 2) * 20'000);
    step.seconds = model.Seconds(step.work);
    steps.push_back(step);
  }
  return steps;
}

TEST(StepTimeModelTest, IsLinearInTheWork) {
  const StepTimeModel model{0.01, 0.001, 0.002, 0.000'1};
  StepWork work;
  work.Add(/*first_token=*/0, /*num_tokens=*/5);
  work.Add(/*first_token=*/9, /*num_tokens=*/1);
  EXPECT_EQ(work.prefill_tokens, 5);
  EXPECT_EQ(work.decode_sequences, 1);
  EXPECT_EQ(work.context_tokens, 15);
  EXPECT_EQ(work.num_tokens(), 6);
  EXPECT_DOUBLE_EQ(model.Seconds(work), 0.01 + 5 * 0.001 + 0.002 + 15 * 0.0001);
}

TEST(StepTimeModelTest, Opt13bIsThatOfTheHardware) {
  const StepTimeModel model = StepTimeModel::Opt13bOnA100();
  EXPECT_NEAR(model.fixed_s, 0.0214, 0.0001);                  // 25.7 GB at 1.2 TB/s
  EXPECT_NEAR(model.per_prefill_token_s, 165e-6, 1e-6);        // 25.7 GFLOP at 156 TFLOP/s
  EXPECT_NEAR(model.per_context_token_s, 0.683e-6, 0.001e-6);  // 800 KiB at 1.2 TB/s
}

TEST(StepTimeModelTest, AFitFindsTheModelThatMadeTheSteps) {
  const StepTimeModel truth{0.004, 30e-6, 200e-6, 0.5e-6};
  const auto fitted = StepTimeModel::Fit(StepsOf(truth, 50));
  ASSERT_EQ(fitted.status(), absl::OkStatus());
  EXPECT_NEAR(fitted->fixed_s, truth.fixed_s, 1e-9);
  EXPECT_NEAR(fitted->per_prefill_token_s, truth.per_prefill_token_s, 1e-12);
  EXPECT_NEAR(fitted->per_decode_sequence_s, truth.per_decode_sequence_s, 1e-11);
  EXPECT_NEAR(fitted->per_context_token_s, truth.per_context_token_s, 1e-13);
}

TEST(StepTimeModelTest, AFitHasNoNegativeCoefficients) {
  // Time falls with the context: the best allowed coefficient is 0.
  std::vector<MeasuredStep> steps = StepsOf({0.1, 30e-6, 200e-6, 0}, 50);
  for (MeasuredStep& step : steps) {
    step.seconds -= 1e-6 * static_cast<double>(step.work.context_tokens);
  }
  const auto fitted = StepTimeModel::Fit(steps);
  ASSERT_EQ(fitted.status(), absl::OkStatus());
  EXPECT_EQ(fitted->per_context_token_s, 0);
  EXPECT_GT(fitted->fixed_s, 0);
  EXPECT_GT(fitted->per_prefill_token_s, 0);
}

TEST(StepTimeModelTest, AFitWithAFixedTermKeepsTheSumOfTheTimes) {
  std::vector<MeasuredStep> steps = StepsOf({0.01, 30e-6, 200e-6, 0.5e-6}, 50);
  double sum = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].seconds += i % 2 == 0 ? 0.001 : -0.001;
    sum += steps[i].seconds;
  }
  const auto fitted = StepTimeModel::Fit(steps);
  ASSERT_EQ(fitted.status(), absl::OkStatus());
  double fitted_sum = 0;
  for (const MeasuredStep& step : steps) fitted_sum += fitted->Seconds(step.work);
  EXPECT_NEAR(fitted_sum, sum, 1e-9);
}

TEST(StepTimeModelTest, TooFewOrUselessStepsAreRefused) {
  EXPECT_EQ(StepTimeModel::Fit(StepsOf({1, 1, 1, 1}, 3)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const std::vector<MeasuredStep> timeless(10);
  EXPECT_FALSE(StepTimeModel::Fit(timeless).ok());
}

TEST(StepTimeModelTest, ValidateRefusesNegativeAndMissingTimes) {
  EXPECT_EQ(StepTimeModel::Opt13bOnA100().Validate(), absl::OkStatus());
  EXPECT_FALSE(StepTimeModel{}.Validate().ok());
  EXPECT_FALSE((StepTimeModel{1, -1, 0, 0}).Validate().ok());
}

TEST(MeasuredStepsTest, ParsesLinesAndNamesWhatIsWrong) {
  const auto steps = ParseMeasuredSteps(
      "{\"prefill_tokens\": 7, \"decode_sequences\": 2, \"context_tokens\": 40, \"seconds\": 0.5}\n"
      "\n"
      "{\"prefill_tokens\": 0, \"decode_sequences\": 1, \"context_tokens\": 9, \"seconds\": 1}");
  ASSERT_EQ(steps.status(), absl::OkStatus());
  ASSERT_EQ(steps->size(), 2U);
  EXPECT_EQ((*steps)[0].work.prefill_tokens, 7);
  EXPECT_EQ((*steps)[1].seconds, 1);

  const auto bad = ParseMeasuredSteps(
      "{\"prefill_tokens\": 7, \"decode_sequences\": 2, \"context_tokens\": 40, \"seconds\": -1}");
  EXPECT_EQ(AsStd(bad.status().message()),
            "line 1: \"seconds\" must be a number in [0, 1000000], got -1");
}

}  // namespace
}  // namespace quire::simulator
