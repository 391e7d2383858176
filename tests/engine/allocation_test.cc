// The heap allocations of a steady step on the engine thread: a few per token, for the output that
// goes to another thread, and a fixed number for the snapshot.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "absl/synchronization/notification.h"
#include "engine/engine.h"
#include "tests/engine/engine_harness.h"

namespace {
thread_local std::int64_t allocations = 0;
}  // namespace

// Out of line, or GCC takes malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace quire::engine {
namespace {

class SilentSink final : public OutputSink {
 public:
  void OnOutput(std::vector<std::shared_ptr<TokenStream>>) override {}
};

TEST(Allocation, ASteadyStepAllocatesLittle) {
  constexpr int kStreams = 16;
  constexpr std::int64_t kPerToken = 3, kPerStep = 60;
  HarnessOptions options;
  options.model.num_blocks = 300;
  auto model = std::make_shared<fakes::FakeModelControl>();
  SilentSink sink;
  absl::Notification measured;
  std::int64_t most = 0;
  // Steps 100 to 160: all sixteen decode, none ends.
  model->SetOnStep([&, step = std::make_shared<int>(0),
                    before = std::make_shared<std::int64_t>(0)](const kernels::BatchView& batch) {
    if (*step > 100) {
      EXPECT_EQ(batch.num_tokens(), kStreams);
      most = std::max(most, allocations - *before);
    }
    if (++*step == 160) measured.Notify();
    *before = allocations;
    return absl::OkStatus();
  });
  auto engine = *Engine::Create(options.engine,
                                std::make_unique<fakes::FakeModelRunner>(options.model, model),
                                nullptr, nullptr, options.traits, &sink);
  for (std::uint64_t i = 0; i < kStreams; ++i) {
    ASSERT_TRUE(engine->Submit(Greedy(Prompt(4, i), 250)).ok());
  }
  measured.WaitForNotification();
  engine.reset();
  RecordProperty("allocations_per_step", static_cast<int>(most));
  EXPECT_LE(most, kStreams * kPerToken + kPerStep);
  EXPECT_GT(most, 0) << "nothing was counted";
}

}  // namespace
}  // namespace quire::engine
