// When the monitor calls the engine stuck, on a clock moved by hand.
#include "server/health_monitor.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/clock.h"
#include "tests/server/harness.h"

namespace quire::server {
namespace {

class SilentReader final : public StreamReader {
 public:
  void OnOutputReady() override {}
  void Fail(const absl::Status& status) override { failure = status; }
  void OnTick() override {}
  absl::Status failure;
};

// A request whose step never ends, and a reader who waits for it.
class HealthMonitorTest : public ::testing::Test {
 protected:
  HealthMonitorTest() : steps_(&harness_.model()) {
    steps_.Close();
    engine::GenerationRequest request;
    request.prompt = engine::TokenPrompt{{TokenId{1}, TokenId{2}}};
    stream_ = harness_.engine().Submit(std::move(request)).value();
    steps_.WaitUntilHeld();
    ServedModel model;
    model.engine = &harness_.engine();
    gate_.Open(std::move(model));
    emitter_.Attach(stream_.get(), reader_);
    monitor_.Check();
  }
  ~HealthMonitorTest() override { emitter_.Detach(stream_.get()); }

  HealthState CheckAfter(absl::Duration duration) {
    clock_.Advance(duration);
    monitor_.Check();
    return monitor_.state();
  }

  ServiceContext Services() {
    ServiceContext services;
    services.gate = &gate_;
    services.emitter = &emitter_;
    services.clock = &clock_;
    return services;
  }

  Harness harness_;
  StepGate steps_;
  std::shared_ptr<engine::TokenStream> stream_;
  std::shared_ptr<SilentReader> reader_ = std::make_shared<SilentReader>();
  ManualClock clock_;
  Gate gate_;
  Emitter emitter_;
  ServiceContext services_ = Services();
  HealthMonitor monitor_{services_, absl::Seconds(10), [](HealthState) {}};
};

TEST_F(HealthMonitorTest, C96_NoProgressForTooLongIsStuckAndFailsTheReaders) {
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kServing);
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kServing);
  EXPECT_TRUE(reader_->failure.ok());
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kStuck);
  EXPECT_TRUE(absl::IsInternal(reader_->failure)) << reader_->failure;
}

TEST_F(HealthMonitorTest, ProgressInsideAStepStartsTheCountAgain) {
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kServing);
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kServing);
  harness_.model().ReportProgress();
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kServing);
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kServing);
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kServing);
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kStuck);
}

TEST_F(HealthMonitorTest, APauseOfTheWholeProcessDoesNotCount) {
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kServing);
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kServing);
  EXPECT_EQ(CheckAfter(absl::Minutes(10)), HealthState::kServing);
  EXPECT_TRUE(reader_->failure.ok());
  EXPECT_EQ(CheckAfter(absl::Seconds(4)), HealthState::kStuck);
}

}  // namespace
}  // namespace quire::server
