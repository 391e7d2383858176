// The small parts a server is made of: gate, emitter, timer, offload, listening address.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "server/emitter.h"
#include "server/gate.h"
#include "server/http_server.h"
#include "server/listen_address.h"
#include "server/offload.h"
#include "server/timer_thread.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;

// The gate never touches the engine, so any address will do.
ServedModel AnyModel() {
  ServedModel model;
  model.engine = reinterpret_cast<engine::Engine*>(8);
  return model;
}

TEST(Gate, RefusesUntilOpenedAndAfterClosing) {
  Gate gate;
  EXPECT_TRUE(absl::IsUnavailable(gate.Enter(Gate::Kind::kControl).status()));
  gate.Open(AnyModel());
  EXPECT_TRUE(gate.Enter(Gate::Kind::kGeneration).ok());
  EXPECT_TRUE(gate.Enter(Gate::Kind::kControl).ok());
  gate.StartDraining();
  const auto refused = gate.Enter(Gate::Kind::kGeneration).status();
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("draining"));
  EXPECT_TRUE(gate.Enter(Gate::Kind::kControl).ok());
  gate.Close();
  EXPECT_TRUE(absl::IsUnavailable(gate.Enter(Gate::Kind::kControl).status()));
}

TEST(Gate, WaitsForGenerationsButNotForControlCalls) {
  Gate gate;
  gate.Open(AnyModel());
  const auto control = gate.Enter(Gate::Kind::kControl);
  auto generation = std::make_unique<Gate::Pass>(*gate.Enter(Gate::Kind::kGeneration));
  EXPECT_FALSE(gate.WaitForGenerations(absl::ZeroDuration()));
  std::thread leaver([&] { generation.reset(); });
  EXPECT_TRUE(gate.WaitForGenerations(absl::InfiniteDuration()));
  leaver.join();
}

TEST(Gate, HurryingEndsTheWaitAndOnlyThat) {
  Gate gate;
  gate.Open(AnyModel());
  const auto generation = gate.Enter(Gate::Kind::kGeneration);
  std::thread hurrier([&] { gate.HurryUp(); });
  EXPECT_FALSE(gate.WaitForGenerations(absl::InfiniteDuration()));
  EXPECT_FALSE(gate.WaitForLastGenerations(absl::Milliseconds(1)));
  hurrier.join();
}

TEST(Gate, AMovedPassLeavesOnce) {
  Gate gate;
  gate.Open(AnyModel());
  Gate::Pass first = *gate.Enter(Gate::Kind::kGeneration);
  Gate::Pass second = std::move(first);
  EXPECT_FALSE(first.inside());  // NOLINT(bugprone-use-after-move)
  EXPECT_FALSE(gate.WaitForGenerations(absl::ZeroDuration()));
  second.Release();
  second.Release();
  EXPECT_TRUE(gate.WaitForGenerations(absl::ZeroDuration()));
}

class CountingReader final : public StreamReader {
 public:
  void OnOutputReady() override {
    thread = std::this_thread::get_id();
    ++calls;
    if (calls == wanted) done.Notify();
  }
  void Fail(const absl::Status& status) override { failure = status; }
  void OnTick() override { ++ticks; }

  int wanted = 1;
  std::atomic<int> calls = 0;
  std::atomic<int> ticks = 0;
  std::thread::id thread;
  absl::Status failure;
  absl::Notification done;
};

TEST(Emitter, CallsReadersOnItsOwnThread) {
  Emitter emitter;
  const auto stream = std::make_shared<engine::TokenStream>("r");
  const auto reader = std::make_shared<CountingReader>();
  emitter.Attach(stream.get(), reader);
  EXPECT_TRUE(emitter.has_readers());
  emitter.OnOutput({stream});
  reader->done.WaitForNotification();
  EXPECT_NE(reader->thread, std::this_thread::get_id());
  emitter.Detach(stream.get());
  EXPECT_FALSE(emitter.has_readers());
}

TEST(Emitter, StreamsWithoutAReaderAreSkipped) {
  Emitter emitter;
  const auto known = std::make_shared<engine::TokenStream>("known");
  const auto gone = std::make_shared<engine::TokenStream>("gone");
  const auto reader = std::make_shared<CountingReader>();
  const auto gone_reader = std::make_shared<CountingReader>();
  emitter.Attach(known.get(), reader);
  emitter.Attach(gone.get(), gone_reader);
  emitter.Detach(gone.get());
  emitter.OnOutput({gone, std::make_shared<engine::TokenStream>("unknown"), known});
  reader->done.WaitForNotification();
  EXPECT_EQ(gone_reader->calls, 0);
}

TEST(Emitter, FailAllAndTickReachEveryReader) {
  Emitter emitter;
  const auto a = std::make_shared<engine::TokenStream>("a");
  const auto b = std::make_shared<engine::TokenStream>("b");
  const auto reader_a = std::make_shared<CountingReader>();
  const auto reader_b = std::make_shared<CountingReader>();
  emitter.Attach(a.get(), reader_a);
  emitter.Attach(b.get(), reader_b);
  emitter.Tick();
  emitter.FailAll(absl::InternalError("stuck"));
  for (const auto& reader : {reader_a, reader_b}) {
    EXPECT_EQ(reader->ticks, 1);
    EXPECT_EQ(reader->failure, absl::InternalError("stuck"));
  }
}

TEST(Emitter, RunsJobsOnItsOwnThreadInOrder) {
  Emitter emitter;
  std::vector<int> order;
  absl::Notification done;
  std::thread::id thread;
  for (int i = 0; i < 3; ++i) emitter.Post([&order, i] { order.push_back(i); });
  emitter.Post([&] {
    thread = std::this_thread::get_id();
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(TimerThread, RepeatsUntilTheTaskSaysStop) {
  TimerThread timers;
  std::atomic<int> runs = 0;
  absl::Notification third;
  timers.AddPeriodic(absl::Milliseconds(1), [&] {
    if (++runs < 3) return true;
    third.Notify();
    return false;
  });
  third.WaitForNotification();
  absl::Notification later;
  timers.AddPeriodic(absl::Milliseconds(20), [&] {
    later.Notify();
    return false;
  });
  later.WaitForNotification();
  EXPECT_EQ(runs, 3);
}

TEST(TimerThread, AShortPeriodIsNotHeldUpByALongOne) {
  TimerThread timers;
  timers.AddPeriodic(absl::Hours(1), [] { return true; });
  absl::Notification soon;
  timers.AddPeriodic(absl::Milliseconds(1), [&] {
    soon.Notify();
    return false;
  });
  EXPECT_TRUE(soon.WaitForNotificationWithTimeout(absl::Seconds(10)));
}

TEST(TimerThread, RunsNothingAfterStop) {
  TimerThread timers;
  std::atomic<int> runs = 0;
  absl::Notification first;
  timers.AddPeriodic(absl::Milliseconds(1), [&] {
    if (++runs == 1) first.Notify();
    return true;
  });
  first.WaitForNotification();
  timers.Stop();
  const int runs_at_stop = runs;
  timers.AddPeriodic(absl::ZeroDuration(), [&] {
    ++runs;
    return true;
  });
  timers.Stop();
  EXPECT_EQ(runs, runs_at_stop);
}

TEST(Offload, BoundsThreadsAndQueue) {
  Offload offload(/*max_threads=*/2, /*max_queued=*/3);
  absl::Notification go;
  std::atomic<int> started = 0;
  std::atomic<int> done = 0;
  absl::Barrier* both_busy = new absl::Barrier(3);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(offload
                    .Run([&] {
                      if (both_busy->Block()) delete both_busy;
                      ++started;
                      go.WaitForNotification();
                      ++done;
                    })
                    .ok());
  }
  if (both_busy->Block()) delete both_busy;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(offload.Run([&] { ++done; }).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(offload.Run([&] { ++done; })));
  EXPECT_EQ(done, 0);
  go.Notify();
}

TEST(Offload, DestructorRunsWhatWasQueued) {
  std::atomic<int> done = 0;
  {
    Offload offload(1, 100);
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(offload.Run([&] { ++done; }).ok());
  }
  EXPECT_EQ(done, 50);
}

TEST(ListenAddress, OnlyLoopbackUnlessInsecure) {
  for (const char* host : {"127.0.0.1", "127.3.2.1", "::1", "localhost"}) {
    EXPECT_TRUE(CheckListenHost(host, false).ok()) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "192.168.1.5", "10.0.0.1"}) {
    const absl::Status status = CheckListenHost(host, false);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << host;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--insecure-listen"));
    EXPECT_TRUE(CheckListenHost(host, true).ok()) << host;
  }
  for (const char* host : {"", "example.com", "127.0.0.1:80", "[::1]", "1.2.3"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckListenHost(host, true))) << host;
  }
}

TEST(ListenAddress, BracketsIpv6) {
  EXPECT_EQ(GrpcAddress("127.0.0.1", 5), "127.0.0.1:5");
  EXPECT_EQ(GrpcAddress("localhost", 5), "127.0.0.1:5");
  EXPECT_EQ(GrpcAddress("::1", 5), "[::1]:5");
}

TEST(ListenAddress, SeesThatAPortIsTaken) {
  const auto holder = HttpServer::Start({}, [](const HttpRequest&) { return HttpResponse(); });
  ASSERT_TRUE(holder.ok());
  const absl::Status status = CheckPortFree("127.0.0.1", (*holder)->port());
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string((*holder)->port())));
  EXPECT_TRUE(CheckPortFree("127.0.0.1", 0).ok());
}

}  // namespace
}  // namespace quire::server
