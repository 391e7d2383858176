#include "kernels/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include "base/check.h"

namespace quire::kernels::cpu {
namespace {

// About 30 to 100 us of pauses (40 to 140 cycles each): longer than the single-threaded stretches
// of a step, far shorter than a time slice.
constexpr int kSpins = 2000;

// Returns once `value` differs from `old`.
std::uint32_t AwaitChange(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    __builtin_ia32_pause();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

// Gives thread i the processor i places after the caller's, if there is one for everybody. Only a
// hint for the system: failing is fine.
void PinThreads(std::vector<std::thread>& threads) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return;
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  if (cpus.size() < threads.size() + 1) return;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[i + 1], &one);
    pthread_setaffinity_np(threads[i].native_handle(), sizeof(one), &one);
  }
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : shares_(static_cast<std::size_t>(num_threads)) {
  QUIRE_CHECK(num_threads >= 1) << num_threads;
  threads_.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int worker = 1; worker < num_threads; ++worker) {
    threads_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
  PinThreads(threads_);
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(std::int64_t num_items, void* context, Call call) {
  if (threads_.empty() || num_items <= 1) {
    for (std::int64_t item = 0; item < num_items; ++item) call(context, item, 0);
    return;
  }
  context_ = context;
  call_ = call;
  const auto workers = static_cast<std::int64_t>(shares_.size());
  for (std::int64_t w = 0; w < workers; ++w) {
    Share& share = shares_[static_cast<std::size_t>(w)];
    share.next.store(num_items * w / workers, std::memory_order_relaxed);
    share.end = num_items * (w + 1) / workers;
  }
  gate_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  TakeItems(0);
  std::uint32_t inside = gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  while (inside != 0) inside = AwaitChange(gate_, inside);
}

bool ThreadPool::Enter() {
  std::uint32_t gate = gate_.load(std::memory_order_relaxed);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::Leave() {
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_all();
}

void ThreadPool::TakeItems(int worker) {
  const auto workers = static_cast<int>(shares_.size());
  for (int i = 0; i < workers; ++i) {
    Share& share = shares_[static_cast<std::size_t>((worker + i) % workers)];
    for (;;) {
      // Looking first keeps the counter from running off when many workers pass by.
      if (share.next.load(std::memory_order_relaxed) >= share.end) break;
      const std::int64_t item = share.next.fetch_add(1, std::memory_order_relaxed);
      if (item >= share.end) break;
      call_(context_, item, worker);
    }
  }
}

void ThreadPool::WorkerLoop(int worker) {
  std::uint32_t seen = 0;
  for (;;) {
    seen = AwaitChange(generation_, seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    // The region may be over by now, or even another one open: then that one is helped.
    if (!Enter()) continue;
    TakeItems(worker);
    Leave();
  }
}

}  // namespace quire::kernels::cpu
