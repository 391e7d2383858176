// Ids, clocks, status helpers and checks.
#include <gtest/gtest.h>

#include <memory>
#include <type_traits>
#include <unordered_set>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"

namespace quire {
namespace {

TEST(StrongId, KindsDoNotMix) {
  static_assert(!std::is_convertible_v<BlockId, SequenceId>);
  static_assert(!std::is_convertible_v<int, BlockId>);
  static_assert(!std::is_convertible_v<BlockId, int>);
  static_assert(!std::is_assignable_v<BlockId&, SequenceId>);
}

TEST(StrongId, ComparesAndHashesByValue) {
  EXPECT_LT(BlockId{1}, BlockId{2});
  EXPECT_EQ(BlockId{2}, BlockId{2});
  EXPECT_EQ(BlockId{}.value(), 0);
  const absl::flat_hash_set<BlockId> flat = {BlockId{1}, BlockId{2}, BlockId{1}};
  EXPECT_EQ(flat.size(), 2u);
  const std::unordered_set<SequenceId> standard = {SequenceId{7}, SequenceId{7}};
  EXPECT_EQ(standard.size(), 1u);
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock(absl::UnixEpoch() + absl::Seconds(5));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(5));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(5));
  clock.Advance(absl::Milliseconds(250));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Milliseconds(5250));
}

TEST(RealClock, NeverDecreases) {
  absl::Time last = Clock::Real().Now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = Clock::Real().Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Status, HelpersFormatTheirMessage) {
  const absl::Status status = InvalidArgument("{} must be in [{}, {}]", "top_p", 0, 1.5);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AsStd(status.message()), "top_p must be in [0, 1.5]");
  EXPECT_EQ(NotFound("x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(AlreadyExists("x").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(FailedPrecondition("x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ResourceExhausted("x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Unavailable("x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Unimplemented("x").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Aborted("x").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Internal("x").code(), absl::StatusCode::kInternal);
}

TEST(Status, ArgumentsAreNeverFormatStrings) {
  EXPECT_EQ(AsStd(Internal("{}", "{0:d} %n {}").message()), "{0:d} %n {}");
}

TEST(Status, ViewsConvertBothWays) {
  EXPECT_EQ(AsAbsl(std::string_view("ab\0c", 4)).size(), 4u);
  EXPECT_EQ(AsStd(absl::string_view("abc")), "abc");
}

absl::Status FailIf(bool fail) {
  if (fail) return Aborted("failed");
  return absl::OkStatus();
}

TEST(Status, ReturnIfErrorReturnsOnlyErrors) {
  const auto run = [](bool fail) -> absl::Status {
    QUIRE_RETURN_IF_ERROR(FailIf(fail));
    return NotFound("went on");
  };
  EXPECT_EQ(run(true).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(run(false).code(), absl::StatusCode::kNotFound);
}

TEST(Status, AssignOrReturnMovesTheValue) {
  const auto make = [](bool fail) -> absl::StatusOr<std::unique_ptr<int>> {
    if (fail) return Aborted("failed");
    return std::make_unique<int>(5);
  };
  const auto run = [&make](bool fail) -> absl::StatusOr<int> {
    QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<int> value, make(fail));
    return *value + 1;
  };
  EXPECT_EQ(run(false).value(), 6);
  EXPECT_EQ(run(true).status().code(), absl::StatusCode::kAborted);
}

TEST(CheckDeathTest, PrintsConditionAndExplanation) {
  const int blocks = 3;
  EXPECT_DEATH(QUIRE_CHECK(blocks == 4) << "found " << blocks,
               "base_test.cc:[0-9]+: check failed: blocks == 4 found 3");
}

TEST(Check, EvaluatesItsExplanationOnlyOnFailure) {
  int evaluations = 0;
  QUIRE_CHECK(evaluations == 0) << ++evaluations;
  EXPECT_EQ(evaluations, 0);
}

TEST(Check, NestsInBranchesWithoutBraces) {
  bool reached = false;
  if (false)
    QUIRE_CHECK(false);
  else
    reached = true;
  EXPECT_TRUE(reached);
}

}  // namespace
}  // namespace quire
