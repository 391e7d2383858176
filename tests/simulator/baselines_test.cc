// The policies of earlier systems do what they are said to do.
#include <gtest/gtest.h>

#include "base/status.h"
#include "tests/simulator/simulation_world.h"

namespace quire::simulator {
namespace {

std::int64_t Admitted(const SimulationResult& result, std::size_t request) {
  return absl::ToInt64Seconds(result.requests[request].admitted);
}
std::int64_t Finished(const SimulationResult& result, std::size_t request) {
  return absl::ToInt64Seconds(result.requests[request].last_token);
}

// The sequence that has computed least goes under Quire's rule, the one that came last under
// vLLM's.
TEST(VllmPolicyTest, TheVictimIsTheOneAdmittedLast) {
  // 0: 2 blocks, then one more in step 2; 1: 1 block; 2: 2 blocks. All 5 are taken.
  const std::vector<Request> requests = {MakeRequest(8, 9), MakeRequest(2, 3), MakeRequest(8, 2)};
  const SimulationResult vllm = RunSystem(SmallSystem(SystemKind::kVllm, 20), requests);
  const SimulationResult quire = RunSystem(SmallSystem(SystemKind::kQuire, 20), requests);
  EXPECT_EQ(vllm.counters.preemptions, 1);
  EXPECT_EQ(Finished(vllm, 1), 3);  // Undisturbed.
  EXPECT_GT(Finished(vllm, 2), 2);
  EXPECT_EQ(quire.counters.preemptions, 2);  // 1 alone frees too little for 0 and 2.
  EXPECT_GT(Finished(quire, 1), 3);
}

TEST(VllmPolicyTest, TheHeadOfTheQueueBlocksAllBehindIt) {
  // 0 runs in 4 to 8 of 8 blocks; 1 wants 5; 2 wants 1.
  const std::vector<Request> requests = {MakeRequest(16, 16), MakeRequest(20, 1, 1),
                                         MakeRequest(3, 1, 1)};
  const SimulationResult vllm = RunSystem(SmallSystem(SystemKind::kVllm, 32), requests);
  EXPECT_EQ(Admitted(vllm, 1), 16);
  EXPECT_EQ(Admitted(vllm, 2), 16);
  const SimulationResult quire = RunSystem(SmallSystem(SystemKind::kQuire, 32), requests);
  EXPECT_EQ(Admitted(quire, 1), 16);
  EXPECT_EQ(Admitted(quire, 2), 1);
}

TEST(VllmPolicyTest, BranchesAreSequencesThatShareFullPromptBlocksThroughTheCache) {
  Request request = MakeRequest(10, 3);
  request.num_branches = 3;
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kVllm, 64), {request});
  EXPECT_EQ(result.requests[0].end, RequestOutcome::End::kFinished);
  EXPECT_EQ(result.requests[0].output_tokens, 9);
  // All are admitted in the first step, before anything is cached.
  EXPECT_EQ(result.counters.prefill_tokens, 30);
}

TEST(VllmPolicyTest, WhatOutgrowsThePoolEndsEarlyAndLeavesOthersAlone) {
  const SimulationResult result =
      RunSystem(SmallSystem(SystemKind::kVllm, 8), {MakeRequest(4, 20), MakeRequest(2, 2, 1)});
  EXPECT_EQ(result.requests[0].end, RequestOutcome::End::kEndedEarly);
  EXPECT_EQ(result.requests[0].output_tokens, 5);
  EXPECT_EQ(result.requests[1].end, RequestOutcome::End::kFinished);
}

TEST(ReservationTest, MaxReservesTheContextOfEachRequest) {
  std::vector<Request> requests;
  for (int i = 0; i < 20; ++i) requests.push_back(MakeRequest(10, 10));
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kOrcaMax, 15'700), requests);
  EXPECT_EQ(result.peak_batched, 7);
  EXPECT_EQ(Admitted(result, 6), 0);
  EXPECT_EQ(Admitted(result, 7), 10);  // When the first seven have finished.
  EXPECT_EQ(Admitted(result, 14), 20);
  // Computed 10..18 of 2048 after the first nine steps of a batch.
  EXPECT_NEAR(result.useful_share, 14.0 / 2048, 1e-9);
}

TEST(ReservationTest, OracleReservesTheTrueLengthAndPow2RoundsTheAnswerUp) {
  // 20 + 12 = 32 slots; the next power of two of 12 is 16, and 36 slots take a piece of 64.
  const std::vector<Request> requests = {MakeRequest(20, 12)};
  const SimulationResult oracle = RunSystem(SmallSystem(SystemKind::kOrcaOracle, 64), requests);
  const SimulationResult pow2 = RunSystem(SmallSystem(SystemKind::kOrcaPow2, 64), requests);
  EXPECT_NEAR(oracle.useful_share, 25.0 / 32, 1e-9);  // The mean of 20..30.
  EXPECT_NEAR(pow2.useful_share, 25.0 / 64, 1e-9);
}

TEST(ReservationTest, RequestsJoinAndLeaveARunningBatch) {
  const SimulationResult result = RunSystem(SmallSystem(SystemKind::kOrcaOracle, 64),
                                            {MakeRequest(4, 6), MakeRequest(4, 2, 1)});
  EXPECT_EQ(Admitted(result, 1), 1);
  EXPECT_EQ(Finished(result, 1), 3);
  EXPECT_EQ(Finished(result, 0), 6);
}

TEST(ReservationTest, WhatNeverFitsIsRefused) {
  SystemOptions system = SmallSystem(SystemKind::kOrcaMax, 1024);
  const SimulationResult result = RunSystem(system, {MakeRequest(4, 4)});
  EXPECT_EQ(result.requests[0].end, RequestOutcome::End::kRefused);
  EXPECT_EQ(result.first_refusal, "a reservation of 2048 slots does not fit 1024 slots");
}

TEST(StaticBatchTest, EverybodyWaitsForTheLongestAnswer) {
  SystemOptions system = SmallSystem(SystemKind::kStatic, 64);
  system.scheduler.max_model_len = 32;
  const std::vector<Request> requests = {MakeRequest(4, 3), MakeRequest(4, 1), MakeRequest(4, 1)};
  const SimulationResult result = RunSystem(system, requests, {.step_time = kSimpleSteps});
  // Two fit: 1.8 s, then two decodes of 1.02 s each, the second member's as padding.
  EXPECT_DOUBLE_EQ(absl::ToDoubleSeconds(result.requests[0].last_token), 3.84);
  EXPECT_DOUBLE_EQ(absl::ToDoubleSeconds(result.requests[1].first_token), 3.84);
  EXPECT_DOUBLE_EQ(absl::ToDoubleSeconds(result.requests[2].admitted), 3.84);
  EXPECT_DOUBLE_EQ(absl::ToDoubleSeconds(result.requests[2].last_token), 3.84 + 1.4);
  EXPECT_EQ(result.counters.decode_tokens, 4);
  // After step 1: 4 of 64 useful (the second has finished); after step 2: 5; then the third's
  // batch publishes nothing in between.
  EXPECT_NEAR(result.useful_share, 4.5 / 64, 1e-9);
}

TEST(SystemOptionsTest, ValidateNamesWhatIsWrong) {
  EXPECT_EQ(SystemOptions{}.Validate(), absl::OkStatus());
  EXPECT_FALSE((SystemOptions{.num_slots = 0}).Validate().ok());
  EXPECT_FALSE((SystemOptions{.block_size = 0}).Validate().ok());
  EXPECT_FALSE((SystemOptions{.block_size = 12}).Validate().ok());
  EXPECT_FALSE((SystemOptions{.num_slots = 8, .block_size = 16}).Validate().ok());
}

}  // namespace
}  // namespace quire::simulator
