// quire.v1.StatsService.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "quire/v1/stats.grpc.pb.h"
#include "server/service_context.h"

namespace quire::server {

class KvEventCall;
class StatsWatch;

template <class Base>
using RawStats = v1::StatsService::WithRawCallbackMethod_GetStats<
    v1::StatsService::WithRawCallbackMethod_WatchStats<
        v1::StatsService::WithRawCallbackMethod_GetBlockMap<
            v1::StatsService::WithRawCallbackMethod_SubscribeKvEvents<Base>>>>;

class StatsService final : public RawStats<v1::StatsService::Service> {
 public:
  explicit StatsService(const ServiceContext& services)
      : services_(services), started_(services.clock->Now()) {}
  ~StatsService() override;

  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchStats(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* GetBlockMap(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* SubscribeKvEvents(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;

  // Ends every WatchStats and SubscribeKvEvents stream with UNAVAILABLE; they would hold a shutdown
  // up.
  void EndWatches();

 private:
  const ServiceContext& services_;
  const absl::Time started_;
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<StatsWatch>> watches_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<KvEventCall>> subscribers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace quire::server
