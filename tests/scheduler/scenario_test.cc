// Runs every file of tests/scenarios.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/status.h"
#include "tests/scheduler/scenario.h"

namespace quire::scheduler {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> ScenarioFiles() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(QUIRE_TEST_DATA "/scenarios")) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

class ScenarioTest : public testing::TestWithParam<fs::path> {};

TEST_P(ScenarioTest, HappensAsWritten) {
  const Scenario scenario = ParseScenario(ReadFile(GetParam()));
  ASSERT_FALSE(scenario.title.empty());
  ASSERT_FALSE(scenario.commands.empty());
  ScenarioRunner runner;
  for (const ScenarioCommand& command : scenario.commands) {
    SCOPED_TRACE(testing::Message()
                 << GetParam().string() << ":" << command.line_number << ": " << command.text);
    const absl::StatusOr<std::vector<std::string>> actual = runner.Run(command.text);
    ASSERT_TRUE(actual.ok()) << AsStd(actual.status().message());
    ASSERT_EQ(Join(*actual), Join(command.expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, ScenarioTest, testing::ValuesIn(ScenarioFiles()),
                         [](const testing::TestParamInfo<fs::path>& file) {
                           std::string name = file.param.stem().string();
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST(Scenario, ThereAreScenarios) { EXPECT_GE(ScenarioFiles().size(), 60u); }

}  // namespace
}  // namespace quire::scheduler
