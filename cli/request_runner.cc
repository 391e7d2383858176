#include "cli/request_runner.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cli/completion.h"

namespace quire::cli {
namespace {

// Requests that are done, from the target's thread to the caller's.
class DoneQueue {
 public:
  void Push(std::size_t index) {
    absl::MutexLock lock(&mutex_);
    indices_.push_back(index);
  }
  std::vector<std::size_t> Wait() {
    absl::MutexLock lock(
        &mutex_,
        absl::Condition(
            +[](std::vector<std::size_t>* indices) { return !indices->empty(); }, &indices_));
    return std::move(indices_);
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::size_t> indices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void RunRequests(Target& target, const std::vector<v1::GenerateRequest>& requests,
                 const RunnerOptions& options, const RunnerHooks& hooks) {
  struct Slot {
    RequestResult result;
    bool done = false;  // The caller's thread only.
  };
  std::vector<Slot> slots(requests.size());
  // Shared, since the last Push may still be returning when this function does.
  const auto done_queue = std::make_shared<DoneQueue>();
  const auto send = [&](std::size_t index) {
    Slot& slot = slots[index];
    target.Generate(
        requests[index], options.call,
        [&hooks, &slot, index](const v1::GenerateResponse& response) {
          Accumulate(response, &slot.result.answer);
          if (hooks.on_response) hooks.on_response(index, response);
        },
        [done_queue, &slot, index](const server::CallOutcome& outcome) {
          slot.result.outcome = outcome;
          done_queue->Push(index);
        });
  };

  const std::size_t limit = options.concurrency == 0 ? requests.size() : options.concurrency;
  std::size_t num_sent = 0;
  std::size_t num_done = 0;
  std::size_t num_handed_out = 0;
  while (num_done < requests.size()) {
    while (num_sent < requests.size() && num_sent - num_done < limit) send(num_sent++);
    for (const std::size_t index : done_queue->Wait()) {
      slots[index].done = true;
      ++num_done;
    }
    if (hooks.on_progress) hooks.on_progress(num_done);
    for (; num_handed_out < slots.size() && slots[num_handed_out].done; ++num_handed_out) {
      hooks.on_result(num_handed_out, slots[num_handed_out].result);
      slots[num_handed_out].result = {};
    }
  }
}

}  // namespace quire::cli
