#include "engine/kv_event_hub.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"

namespace quire::engine {
namespace {

using block_manager::KvEvent;

std::int64_t BytesOf(const std::vector<KvEvent>& events) {
  std::size_t bytes = 0;
  for (const KvEvent& event : events)
    bytes += sizeof(event) + event.tokens.size() * sizeof(TokenId);
  return static_cast<std::int64_t>(bytes);
}

std::shared_ptr<const KvEventBatch> MakeBatch(bool snapshot, std::vector<KvEvent> events) {
  auto batch = std::make_shared<KvEventBatch>();
  batch->snapshot = snapshot;
  batch->events = std::move(events);
  return batch;
}

}  // namespace

// What hub and subscriptions share. Callbacks run without the lock: they may drop a subscription.
class KvEventLog {
 public:
  explicit KvEventLog(std::int64_t max_bytes) : max_bytes_(max_bytes) {}

  absl::Status Add(const KvEventSubscription* subscription, KvEventHub::OnReady on_ready) {
    absl::MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    if (readers_.size() >= KvEventHub::kMaxSubscriptions) {
      return ResourceExhausted("{} clients subscribe to KV events already", readers_.size());
    }
    readers_[subscription].on_ready =
        std::make_shared<const KvEventHub::OnReady>(std::move(on_ready));
    return absl::OkStatus();
  }

  void Remove(const KvEventSubscription* subscription) {
    absl::MutexLock lock(&mutex_);
    readers_.erase(subscription);
    Trim();
  }

  bool has_readers() const {
    absl::MutexLock lock(&mutex_);
    return !readers_.empty();
  }

  void Open(const KvEventSubscription* subscription, std::vector<KvEvent> snapshot) {
    Wakes wakes;
    {
      absl::MutexLock lock(&mutex_);
      const auto found = readers_.find(subscription);
      if (found == readers_.end()) return;
      Reader& reader = found->second;
      reader.open = true;
      reader.snapshot = MakeBatch(/*snapshot=*/true, std::move(snapshot));
      reader.position = end();
      WakeLocked(reader, &wakes);
    }
    Run(wakes);
  }

  void Append(std::vector<KvEvent> events) {
    Wakes wakes;
    {
      absl::MutexLock lock(&mutex_);
      const std::int64_t bytes = BytesOf(events);
      entries_.push_back({MakeBatch(/*snapshot=*/false, std::move(events)), bytes});
      bytes_ += bytes;
      while (bytes_ > max_bytes_ && entries_.size() > 1) DropFirst();
      for (auto& [subscription, reader] : readers_) {
        if (!reader.open || !reader.status.ok()) continue;
        if (reader.position < first_) {
          EndLocked(reader,
                    ResourceExhausted("the subscriber reads too slowly: more than {} bytes of KV "
                                      "events wait for it",
                                      max_bytes_),
                    &wakes);
        } else {
          WakeLocked(reader, &wakes);
        }
      }
      Trim();
    }
    Run(wakes);
  }

  void Close(const absl::Status& status) {
    Wakes wakes;
    {
      absl::MutexLock lock(&mutex_);
      if (!closed_.ok()) return;
      closed_ = status;
      for (auto& [subscription, reader] : readers_) {
        if (reader.status.ok()) EndLocked(reader, status, &wakes);
      }
      Trim();
    }
    Run(wakes);
  }

  std::shared_ptr<const KvEventBatch> Next(const KvEventSubscription* subscription) {
    absl::MutexLock lock(&mutex_);
    Reader& reader = readers_.at(subscription);
    if (reader.snapshot != nullptr) return std::move(reader.snapshot);
    if (!reader.open || !reader.status.ok() || reader.position == end()) {
      reader.waits = true;
      return nullptr;
    }
    auto batch = entries_[static_cast<std::size_t>(reader.position - first_)].batch;
    ++reader.position;
    Trim();
    return batch;
  }

  absl::Status StatusOf(const KvEventSubscription* subscription) const {
    absl::MutexLock lock(&mutex_);
    return readers_.at(subscription).status;
  }

 private:
  struct Entry {
    std::shared_ptr<const KvEventBatch> batch;
    std::int64_t bytes = 0;
  };
  struct Reader {
    std::shared_ptr<const KvEventHub::OnReady> on_ready;
    bool open = false;
    bool waits = false;  // Next had nothing, and on_ready was not called since.
    std::shared_ptr<const KvEventBatch> snapshot;  // Until it is taken.
    std::uint64_t position = 0;                    // Number of the entry to read next.
    absl::Status status;
  };
  using Wakes = std::vector<std::shared_ptr<const KvEventHub::OnReady>>;

  static void WakeLocked(Reader& reader, Wakes* wakes) {
    if (std::exchange(reader.waits, false)) wakes->push_back(reader.on_ready);
  }
  static void EndLocked(Reader& reader, absl::Status status, Wakes* wakes) {
    reader.snapshot.reset();
    reader.status = std::move(status);
    wakes->push_back(reader.on_ready);
  }
  static void Run(const Wakes& wakes) {
    for (const auto& wake : wakes) (*wake)();
  }

  std::uint64_t end() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return first_ + entries_.size();
  }
  void DropFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bytes_ -= entries_.front().bytes;
    entries_.pop_front();
    ++first_;
  }
  // Drops what everybody has read.
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::uint64_t oldest = end();
    for (const auto& [subscription, reader] : readers_) {
      if (reader.open && reader.status.ok()) oldest = std::min(oldest, reader.position);
    }
    while (first_ < oldest) DropFirst();
  }

  const std::int64_t max_bytes_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<const KvEventSubscription*, Reader> readers_ ABSL_GUARDED_BY(mutex_);
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t first_ ABSL_GUARDED_BY(mutex_) = 0;  // Number of entries_.front().
  std::int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;   // Of all entries.
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);      // Not OK: closed.
};

KvEventSubscription::~KvEventSubscription() { log_->Remove(this); }
std::shared_ptr<const KvEventBatch> KvEventSubscription::Next() { return log_->Next(this); }
absl::Status KvEventSubscription::status() const { return log_->StatusOf(this); }

KvEventHub::KvEventHub(std::int64_t max_bytes) : log_(std::make_shared<KvEventLog>(max_bytes)) {}

absl::StatusOr<std::shared_ptr<KvEventSubscription>> KvEventHub::Subscribe(OnReady on_ready) {
  auto subscription = std::make_shared<KvEventSubscription>(log_);
  QUIRE_RETURN_IF_ERROR(log_->Add(subscription.get(), std::move(on_ready)));
  return subscription;
}

bool KvEventHub::has_subscriptions() const { return log_->has_readers(); }

void KvEventHub::Open(const KvEventSubscription& subscription, std::vector<KvEvent> snapshot) {
  log_->Open(&subscription, std::move(snapshot));
}

void KvEventHub::Publish(std::vector<KvEvent> events) { log_->Append(std::move(events)); }

void KvEventHub::Close(const absl::Status& status) { log_->Close(status); }

}  // namespace quire::engine
