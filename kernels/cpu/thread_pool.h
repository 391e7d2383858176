// A few workers that run one parallel region after another, many thousand times a second. The
// calling thread is worker 0; the other workers are threads of the pool.
//
// A thread that waits (a worker for the next region, the caller for workers still at it) spins for
// a bounded time, then sleeps in the kernel: inside a step regions follow each other within
// microseconds and cost about 0.5 us each; between steps, and when the machine is busy, nobody
// burns a core.
//
// Work is cut into items. Every worker starts with a contiguous share of them (it streams through
// memory, and the same items meet the same caches each time) and then takes what is left of the
// others' shares. A region ends when its items have run: a worker that is asleep or has lost its
// core is not waited for, unless it is inside an item. Which worker runs an item must not influence
// its result.
//
// Thread: one thread at a time calls ParallelFor; bodies must not call it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace quire::kernels::cpu {

class ThreadPool {
 public:
  // Starts num_threads - 1 threads, REQUIRES num_threads >= 1. They are spread over the affinity
  // mask of the caller where it has room for all; otherwise the system places them.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // body(item, worker) for every item in [0, num_items), in no particular order; returns when all
  // have run. worker is in [0, num_threads()). A single item runs on the caller.
  template <class Body>
  void ParallelFor(std::int64_t num_items, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    Run(num_items, const_cast<void*>(static_cast<const void*>(&body)),
        [](void* context, std::int64_t item, int worker) {
          (*static_cast<Plain*>(context))(item, worker);
        });
  }

 private:
  using Call = void (*)(void* context, std::int64_t item, int worker);

  // Items that a worker starts with, on a cache line of its own.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next = 0;
    std::int64_t end = 0;
  };
  // Of gate_: the region takes workers in. The other bits count those inside.
  static constexpr std::uint32_t kOpen = std::uint32_t{1} << 31;

  void Run(std::int64_t num_items, void* context, Call call);
  void WorkerLoop(int worker);
  bool Enter();
  void Leave();
  void TakeItems(int worker);

  // The region in progress. Written while the gate is shut and nobody inside, read by workers
  // inside.
  void* context_ = nullptr;
  Call call_ = nullptr;
  std::vector<Share> shares_;

  alignas(64) std::atomic<std::uint32_t> generation_ = 0;  // Regions started; workers wait for it.
  alignas(64) std::atomic<std::uint32_t> gate_ = 0;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire::kernels::cpu
