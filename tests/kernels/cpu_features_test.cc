#include "kernels/cpu/cpu_features.h"

#include <cpuid.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "kernels/cpu/cgroup_quota.h"
#include "kernels/cpu/cpu_backend.h"

namespace quire::kernels::cpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CpuidBits kSkylakeServer = {
    .leaf1_ecx = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C,
    .leaf7_ebx = bit_AVX2 | bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL,
    .xcr0 = 0xe7};

TEST(CpuFeatures, OffersWhatProcessorAndSystemHave) {
  EXPECT_THAT(LevelsOf(kSkylakeServer), ElementsAre(IsaLevel::kAvx2, IsaLevel::kAvx512));
  EXPECT_THAT(LevelsOf({}), IsEmpty());
}

// C132: the processor has the instructions, but the system does not save their registers.
TEST(CpuFeatures, C132_NeedsTheSystemToSaveTheRegisters) {
  CpuidBits bits = kSkylakeServer;
  for (const std::uint64_t xcr0 : {0x07U, 0x27U, 0x67U, 0xa7U}) {
    bits.xcr0 = xcr0;
    EXPECT_THAT(LevelsOf(bits), ElementsAre(IsaLevel::kAvx2)) << xcr0;
  }
  for (const std::uint64_t xcr0 : {0x00U, 0x03U, 0x05U, 0xe3U}) {
    bits.xcr0 = xcr0;
    EXPECT_THAT(LevelsOf(bits), IsEmpty()) << xcr0;
  }
  bits = kSkylakeServer;
  bits.leaf1_ecx &= ~static_cast<std::uint32_t>(bit_OSXSAVE);
  EXPECT_THAT(LevelsOf(bits), IsEmpty());
}

TEST(CpuFeatures, NeedsEveryInstructionOfALevel) {
  for (const std::uint32_t bit : {bit_AVX, bit_FMA, bit_F16C}) {
    CpuidBits bits = kSkylakeServer;
    bits.leaf1_ecx &= ~bit;
    EXPECT_THAT(LevelsOf(bits), IsEmpty()) << bit;
  }
  for (const std::uint32_t bit : std::initializer_list<std::uint32_t>{
           bit_AVX512F, bit_AVX512BW, bit_AVX512DQ, static_cast<std::uint32_t>(bit_AVX512VL)}) {
    CpuidBits bits = kSkylakeServer;
    bits.leaf7_ebx &= ~bit;
    EXPECT_THAT(LevelsOf(bits), ElementsAre(IsaLevel::kAvx2)) << bit;
  }
}

TEST(CpuFeatures, SelectsTheBestOrTheOneNamed) {
  const std::vector<IsaLevel> levels = SupportedIsaLevels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(*SelectIsa(""), levels.back());
  for (const IsaLevel level : levels) EXPECT_EQ(*SelectIsa(IsaName(level)), level);
  const auto unknown = SelectIsa("avx1024");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("unknown isa \"avx1024\"; known: avx2, avx512"));
}

TEST(CpuFeatures, TheBackendReportsAndChecksItsOptions) {
  const auto backend = NewCpuBackend({.isa = "avx2", .threads = 2});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->info().name, "cpu");
  EXPECT_EQ((*backend)->info().isa, "avx2");
  EXPECT_EQ((*backend)->info().num_threads, 2);
  for (const int threads : {0, -1, 1025}) {
    const auto refused = NewCpuBackend({.isa = "", .threads = threads});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(std::to_string(threads)));
  }
  EXPECT_EQ(NewCpuBackend({.isa = "neon", .threads = 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(UsableCpus, StaysWithinTheAffinityMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_LE(UsableCpus(), CPU_COUNT(&mask));
}

// A made-up /proc/self/cgroup and /sys/fs/cgroup.
class CgroupQuotaTest : public ::testing::Test {
 protected:
  CgroupQuotaTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ =
        std::filesystem::path(::testing::TempDir()) / ("quire_cgroup_" + std::string(info->name()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~CgroupQuotaTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content;
  }
  std::optional<int> Quota() const {
    return CgroupCpuQuota((root_ / "membership").string(), (root_ / "fs").string());
  }

 private:
  std::filesystem::path root_;
};

TEST_F(CgroupQuotaTest, NothingToReadMeansNoLimit) { EXPECT_EQ(Quota(), std::nullopt); }

TEST_F(CgroupQuotaTest, Version2RoundsUp) {
  Write("membership", "0::/a/b\n");
  Write("fs/a/b/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota(), 2);
  Write("fs/a/b/cpu.max", "200000 100000\n");
  EXPECT_EQ(Quota(), 2);
  Write("fs/a/b/cpu.max", "1000 100000\n");
  EXPECT_EQ(Quota(), 1);
}

TEST_F(CgroupQuotaTest, Version2TakesTheSmallestOfTheGroupsAbove) {
  Write("membership", "0::/a/b\n");
  Write("fs/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), std::nullopt);
  Write("fs/a/cpu.max", "700000 100000\n");
  EXPECT_EQ(Quota(), 7);
  Write("fs/cpu.max", "300000 100000\n");
  EXPECT_EQ(Quota(), 3);
}

TEST_F(CgroupQuotaTest, Version1) {
  Write("membership", "11:memory:/x\n4:cpu,cpuacct:/x/y\n2:cpuset:/z\n");
  Write("fs/cpu/x/y/cpu.cfs_quota_us", "-1\n");
  Write("fs/cpu/x/y/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), std::nullopt);
  Write("fs/cpu/x/y/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(Quota(), 3);
}

TEST_F(CgroupQuotaTest, NonsenseMeansNoLimit) {
  for (const char* content : {"", "banana", "1", "0 100000", "-5 100000", "100000 0"}) {
    Write("membership", "0::/\nno colons here\n:\n");
    Write("fs/cpu.max", content);
    EXPECT_EQ(Quota(), std::nullopt) << content;
  }
}

}  // namespace
}  // namespace quire::kernels::cpu
