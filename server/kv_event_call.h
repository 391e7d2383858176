// One SubscribeKvEvents call: the engine's batches, numbered, one write at a time.
//
// Ownership: a call keeps itself alive until gRPC says OnDone.
// Thread: reactions run on gRPC's threads, news from the engine on the emitter's; a mutex orders
// them, and no gRPC operation is started with it held.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/kv_event_hub.h"
#include "quire/v1/stats.pb.h"
#include "server/service_context.h"

namespace quire::server {

class KvEventCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                          public std::enable_shared_from_this<KvEventCall> {
 public:
  KvEventCall(const ServiceContext& services, grpc::CallbackServerContext* context,
              Gate::Pass pass);

  // The headers leave at once: a gateway takes them for the answer to its subscription.
  void Start();
  // Ends the call with `status`, after the write in flight.
  void End(const absl::Status& status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // Starts the next operation, if one is due.
  void Pump();
  // Fills message_ with the next batch or part of one; false when there is none.
  bool NextMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A client that does not even read the message in flight hears no status; it is dropped when it
  // has had cut_grace to go on.
  void CutLater();

  const ServiceContext& services_;
  grpc::CallbackServerContext* const context_;
  const Gate::Pass pass_;  // Outlives the subscription.
  const std::int32_t block_size_;
  std::shared_ptr<KvEventCall> self_;  // Until OnDone.

  absl::Mutex mutex_;
  std::shared_ptr<engine::KvEventSubscription> subscription_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const engine::KvEventBatch> batch_ ABSL_GUARDED_BY(mutex_);  // Being sent.
  std::size_t num_sent_ ABSL_GUARDED_BY(mutex_) = 0;                           // Events of it.
  std::uint64_t sequence_number_ ABSL_GUARDED_BY(mutex_) = 0;                  // The last one used.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_due_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;            // The last operation has been started.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // Said once the write is through.
  grpc::ByteBuffer message_;                                 // In flight while writing_.
};

}  // namespace quire::server
