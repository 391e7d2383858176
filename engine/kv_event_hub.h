// Hands every change of the prefix cache to those who subscribed to it: to each first what is
// cached when it joins, then every later batch, once and in order.
//
// All share one log of batches; a subscription is a position in it. The log keeps what somebody has
// still to take, up to a bound: whoever falls behind that is ended with RESOURCE_EXHAUSTED, and
// nobody waits for anybody.
//
// Thread: Open, Publish and Close on the engine thread, everything else on any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "block_manager/kv_event.h"

namespace quire::engine {

struct KvEventBatch {
  bool snapshot = false;  // All that was cached, parents first; may be empty.
  std::vector<block_manager::KvEvent> events;
};

class KvEventLog;

// Ownership: destroying it unsubscribes; it may outlive the engine.
class KvEventSubscription {
 public:
  explicit KvEventSubscription(std::shared_ptr<KvEventLog> log) : log_(std::move(log)) {}
  ~KvEventSubscription();
  KvEventSubscription(const KvEventSubscription&) = delete;
  KvEventSubscription& operator=(const KvEventSubscription&) = delete;

  // The next batch; null when there is none yet (OnReady will tell) or never will be (status).
  std::shared_ptr<const KvEventBatch> Next();
  // Not OK: nothing follows.
  absl::Status status() const;

 private:
  const std::shared_ptr<KvEventLog> log_;
};

class KvEventHub {
 public:
  static constexpr std::size_t kMaxSubscriptions = 64;
  // Called when Next has something again after it gave null, and when the subscription has ended.
  // On the engine thread: must not block.
  using OnReady = std::function<void()>;

  // The log holds at most `max_bytes`, or one batch if that is larger.
  explicit KvEventHub(std::int64_t max_bytes);

  // A subscription that gets nothing before it is opened. RESOURCE_EXHAUSTED when there are
  // kMaxSubscriptions; the status of Close afterwards.
  absl::StatusOr<std::shared_ptr<KvEventSubscription>> Subscribe(OnReady on_ready);
  bool has_subscriptions() const;

  // From now on `subscription` gets `snapshot` and whatever is published.
  void Open(const KvEventSubscription& subscription, std::vector<block_manager::KvEvent> snapshot);
  void Publish(std::vector<block_manager::KvEvent> events);
  // Ends all with `status`.
  void Close(const absl::Status& status);

 private:
  const std::shared_ptr<KvEventLog> log_;
};

}  // namespace quire::engine
