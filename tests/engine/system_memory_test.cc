#include "engine/system_memory.h"

#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/fakes/file_writers.h"

namespace quire::engine {
namespace {

class SystemMemoryTest : public testing::Test {
 protected:
  SystemMemoryTest() {
    Write("proc/meminfo", "MemTotal:       16000 kB\nMemFree: 1 kB\nMemAvailable:   12000 kB\n");
  }
  void Write(const std::string& name, const std::string& content) {
    const std::string path = folder_.File(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    fakes::WriteFile(path, content);
  }
  SystemMemory Read() { return ReadSystemMemory(folder_.File("proc"), folder_.File("cgroup")); }

  fakes::TempFolder folder_;
};

TEST_F(SystemMemoryTest, ReadsTheMachine) {
  EXPECT_EQ(Read().total_bytes, 16000 * 1024);
  EXPECT_EQ(Read().available_bytes, 12000 * 1024);
  const SystemMemory none = ReadSystemMemory("/nonexistent", "/nonexistent");
  EXPECT_EQ(none.total_bytes, 0);
  EXPECT_EQ(none.available_bytes, 0);
}

TEST_F(SystemMemoryTest, Version2LimitsOfAllGroupsCount) {
  Write("proc/self/cgroup", "0::/user/app\n");
  Write("cgroup/user/app/memory.max", "max\n");
  Write("cgroup/user/memory.max", "8000000\n");
  Write("cgroup/user/memory.current", "3000000\n");
  Write("cgroup/user/memory.stat", "anon 5\ninactive_file 1000000\n");
  EXPECT_EQ(Read().total_bytes, 8'000'000);
  EXPECT_EQ(Read().available_bytes, 6'000'000);
  Write("cgroup/user/app/memory.max", "2000000\n");
  Write("cgroup/user/app/memory.current", "2500000\n");
  EXPECT_EQ(Read().total_bytes, 2'000'000);
  EXPECT_EQ(Read().available_bytes, 0);
}

TEST_F(SystemMemoryTest, Version1LimitsCount) {
  Write("proc/self/cgroup", "3:cpu,cpuacct:/a\n2:memory:/box\n");
  Write("cgroup/memory/box/memory.limit_in_bytes", "4000000\n");
  Write("cgroup/memory/box/memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(Read().total_bytes, 4'000'000);
  EXPECT_EQ(Read().available_bytes, 3'000'000);
}

TEST(SteadyAvailableBytes, C129_SmallChangesElsewhereDoNotMoveIt) {
  const auto steady = [](std::int64_t available) {
    return SteadyAvailableBytes({.total_bytes = 16000, .available_bytes = available});
  };
  EXPECT_EQ(steady(15900), 14000);
  EXPECT_EQ(steady(14600), 14000);
  EXPECT_EQ(steady(14000), 14000);
  EXPECT_EQ(steady(13999), 12000);
  EXPECT_EQ(steady(1500), 1500);
  EXPECT_EQ(SteadyAvailableBytes({}), 0);
}

}  // namespace
}  // namespace quire::engine
