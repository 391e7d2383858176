// Scheduler scenarios as text: requests come in, steps run, and below each command stands,
// indented, what must come of it. tests/scenarios/README.md describes the language.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"
#include "tests/fakes/scripted_engine.h"

namespace quire::scheduler {

// A command and the lines that stand below it.
struct ScenarioCommand {
  int line_number = 0;
  std::string text;
  std::vector<std::string> expected;
};

struct Scenario {
  std::string title;  // The first paragraph: what it shows.
  std::vector<ScenarioCommand> commands;
};

Scenario ParseScenario(std::string_view text);

// Runs commands one by one on the real Scheduler and BlockManager.
class ScenarioRunner {
 public:
  // The lines that come of the next command; an error if it cannot be understood.
  absl::StatusOr<std::vector<std::string>> Run(std::string_view command);

 private:
  using Lines = std::vector<std::string>;
  struct Branch {
    std::string name;
    std::vector<TokenId> prompt;
    std::int32_t index = 0;
  };

  absl::StatusOr<Lines> Dispatch(std::string_view verb, std::string_view rest);
  absl::Status SetPool(std::string_view rest);
  absl::Status SetScheduler(std::string_view rest);
  absl::StatusOr<Lines> Add(std::string_view rest);
  absl::StatusOr<Lines> Steps(std::string_view rest);
  Lines Step();
  Lines Fail();
  void Start();

  Lines Describe(const StepPlan& plan) const;
  Lines DescribeWaiting() const;
  std::string DescribePool() const;
  const std::string& Name(SequenceId id) const { return branches_.at(id).name; }

  block_manager::BlockManagerOptions block_options_;
  SchedulerOptions options_;
  std::unique_ptr<block_manager::BlockManager> blocks_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<fakes::ScriptedEngine> engine_;
  std::map<SequenceId, Branch> branches_;
  std::map<std::string, SequenceId, std::less<>> ids_;
  absl::Time now_ = absl::UnixEpoch();
};

// The scenario with the lines below each command replaced by what really comes of it.
absl::StatusOr<std::string> RewriteScenario(std::string_view text);

}  // namespace quire::scheduler
